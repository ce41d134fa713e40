# As herd.py, with dalli, which speaks the binary protocol.
require 'dalli'

address, key, clients, seconds, cost, ttl = ARGV
say = Mutex.new
Array.new(clients.to_i) do
  Thread.new do
    c = Dalli::Client.new(address, socket_timeout: 120, threadsafe: false)
    finish = Time.now.to_f + seconds.to_f
    reads = []
    while (before = Time.now.to_f) < finish
      if c.get(key, raw: true)
        reads << format('%.2f', (Time.now.to_f - before) * 1000)
        sleep 0.05
        next
      end
      begun = Time.now.to_f
      sleep cost.to_f
      made = Time.now.to_f
      c.set(key, "page #{begun}", ttl.to_i, raw: true)
      say.synchronize { $stdout.puts("made #{begun} #{made}"); $stdout.flush }
    end
    say.synchronize { $stdout.puts("read #{reads.join(' ')}"); $stdout.flush }
  end
end.each(&:join)
