# Drives one address through dalli, which speaks the binary protocol.
# Usage: ruby dalli.rb ADDRESS PREFIX
require 'dalli'
require 'securerandom'

address, $prefix = ARGV
$typed = Dalli::Client.new(address, socket_timeout: 120, value_max_bytes: 4 << 20)

# Values as they are.
class Raw
  def set(key, value, ttl = nil) = $typed.set(key, value, ttl, raw: true)
  def add(key, value) = $typed.add(key, value, nil, raw: true)
  def replace(key, value) = $typed.replace(key, value, nil, raw: true)
  def cas(key, &block) = $typed.cas(key, nil, raw: true, &block)
  def method_missing(name, ...) = $typed.public_send(name, ...)
  def respond_to_missing?(*) = true
end
$c = Raw.new

def same(got, want, what)
  show = ->(v) { v.is_a?(String) && v.size > 60 ? "#{v.size} bytes" : v.inspect }
  raise "#{what}: got #{show[got]}, want #{show[want]}" unless got == want
end

def accepted(answer, what) = same(!!answer, true, what)
def refused(answer, what) = same(!!answer, false, what)

def gone(k)
  1200.times do
    return if $c.get(k).nil?
    sleep 0.1
  end
  raise 'still there after 120 s'
end

def check(name)
  yield "#{$prefix}#{name}"
  puts "ok #{name}"
rescue StandardError => e
  puts "not ok #{name}: #{e.class}: #{e.message}"
end

check('set') { |k| accepted($c.set(k, 'one'), 'set') }
check('get') do |k|
  same($c.get(k), nil, 'get of a missing key')
  $c.set(k, "a\r\nEND\r\n\0b")
  same($c.get(k), "a\r\nEND\r\n\0b", 'get')
end
check('multiget') do |k|
  want = (0...1000).to_h { |i| ["#{k}:#{i}", "v#{i}" * (i % 100)] }
  want.each { |key, value| accepted($c.set(key, value), 'set') }
  same($c.get_multi(*want.keys, "#{k}:absent"), want, 'get_multi')
  $c.multi { want.each { |key, value| $c.set(key, value.upcase) } }
  same($c.get_multi(*want.keys), want.transform_values(&:upcase), 'get_multi after quiet sets')
end
check('add') do |k|
  accepted($c.add(k, 'one'), 'add')
  refused($c.add(k, 'two'), 'second add')
  same($c.get(k), 'one', 'get')
end
check('replace') do |k|
  $c.replace(k, 'one') # what it returns does not say that nothing was stored
  same($c.get(k), nil, 'get after the replace of a missing key')
  $c.set(k, 'one')
  accepted($c.replace(k, 'two'), 'replace')
  same($c.get(k), 'two', 'get')
end
check('append') do |k|
  refused($c.append(k, 'x'), 'append to a missing key')
  $c.set(k, 'one')
  accepted($c.append(k, ' two'), 'append')
  same($c.get(k), 'one two', 'get')
end
check('prepend') do |k|
  refused($c.prepend(k, 'x'), 'prepend to a missing key')
  $c.set(k, 'one')
  accepted($c.prepend(k, 'two '), 'prepend')
  same($c.get(k), 'two one', 'get')
end
check('incr') do |k|
  same($c.incr(k, 1), nil, 'incr of a missing key')
  same($c.incr("#{k}:made", 1, nil, 41), 41, 'incr with an initial value')
  same($c.incr("#{k}:made", 1), 42, 'incr of that')
  $c.set(k, '9')
  same($c.incr(k, 3), 12, 'incr')
end
check('decr') do |k|
  same($c.decr(k, 1), nil, 'decr of a missing key')
  $c.set(k, '12')
  same($c.decr(k, 5), 7, 'decr')
  same($c.decr(k, 50), 0, 'decr below zero')
end
check('cas') do |k|
  $c.set(k, 'one')
  accepted($c.cas(k) { |v| same(v, 'one', 'value'); 'two' }, 'cas')
  refused($c.cas(k) { |_| $c.set(k, 'between'); 'three' }, 'cas with an old number')
  same($c.get(k), 'between', 'get')
end
check('touch') do |k|
  refused($c.touch(k, 100), 'touch of a missing key')
  $c.set(k, 'one')
  same($c.gat(k, 100), 'one', 'gat')
  accepted($c.touch(k, 1), 'touch')
  gone(k)
end
check('delete') do |k|
  refused($c.delete(k), 'delete of a missing key')
  $c.set(k, 'one')
  accepted($c.delete(k), 'delete')
  same($c.get(k), nil, 'get')
end
check('flags') do |k|
  $typed.set(k, [1.5, true, nil])
  same($typed.get(k), [1.5, true, nil], 'an array, known by its flags')
end
check('expiry') do |k|
  $c.set("#{k}:stays", 'one', 3600)
  before = nil
  [2, 20, 60].each do |ttl| # the next if this process slept for so long
    $c.set(k, 'one', ttl)
    break if (before = $c.get(k))
  end
  same(before, 'one', 'get before')
  gone(k)
  same($c.get("#{k}:stays"), 'one', 'get of another')
end
{ '0' => 0, '1' => 1, '100k' => 100 << 10, '1m' => 1 << 20 }.each do |label, size|
  check("value-#{label}") do |k|
    value = SecureRandom.bytes(size)
    accepted($c.set(k, value), 'set')
    same($c.get(k).b, value, 'get')
  end
end
