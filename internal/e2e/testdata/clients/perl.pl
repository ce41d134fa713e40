# Drives one address through a Perl client.
# Usage: perl perl.pl Cache::Memcached|Cache::Memcached::Fast ADDRESS PREFIX
# The two share their interface; only Fast has cas and touch.
use strict;
use warnings;

my ($class, $address, $prefix) = @ARGV;
(my $file = "$class.pm") =~ s{::}{/}g;
require $file;
my $fast = $class eq 'Cache::Memcached::Fast';
my $c = $class->new({
    servers => [$address],
    $fast ? (io_timeout => 120, connect_timeout => 120, max_size => 4 << 20) : (connect_timeout => 120, select_timeout => 120),
});

sub show {
    my $v = shift;
    return 'undef' unless defined $v;
    return length($v) > 60 ? length($v) . ' bytes' : "'$v'";
}

sub same {
    my ($got, $want, $what) = @_;
    return if !defined $got && !defined $want;
    die "$what: got ", show($got), ', want ', show($want), "\n"
        if !defined $got || !defined $want || $got ne $want;
}

sub accepted { my ($answer, $what) = @_; same($answer ? 1 : 0, 1, $what) }
sub refused  { my ($answer, $what) = @_; same($answer ? 1 : 0, 0, $what) }

sub gone {
    my $k = shift;
    for (1 .. 1200) {
        return unless defined $c->get($k);
        select undef, undef, undef, 0.1;
    }
    die "still there after 120 s\n";
}

sub check {
    my ($name, $run) = @_;
    print eval { $run->("$prefix$name"); 1 } ? "ok $name\n" : "not ok $name: " . ($@ =~ s/\n//gr) . "\n";
}

check(set => sub { accepted(scalar $c->set($_[0], 'one'), 'set') });
check(get => sub {
    my $k = shift;
    same(scalar $c->get($k), undef, 'get of a missing key');
    $c->set($k, "a\r\nEND\r\n\0b");
    same(scalar $c->get($k), "a\r\nEND\r\n\0b", 'get');
});
check(multiget => sub {
    my $k = shift;
    my %want = map { ("$k:$_" => "v$_" x $_) } 0 .. 99;
    accepted(scalar $c->set($_, $want{$_}), 'set') for sort keys %want;
    my $got = $c->get_multi(keys %want, "$k:absent");
    same(scalar(keys %$got), 100, 'keys found');
    same($got->{$_}, $want{$_}, $_) for keys %want;
});
check(add => sub {
    my $k = shift;
    accepted(scalar $c->add($k, 'one'), 'add');
    refused(scalar $c->add($k, 'two'), 'second add');
    same(scalar $c->get($k), 'one', 'get');
});
check(replace => sub {
    my $k = shift;
    refused(scalar $c->replace($k, 'one'), 'replace of a missing key');
    $c->set($k, 'one');
    accepted(scalar $c->replace($k, 'two'), 'replace');
    same(scalar $c->get($k), 'two', 'get');
});
check(append => sub {
    my $k = shift;
    refused(scalar $c->append($k, 'x'), 'append to a missing key');
    $c->set($k, 'one');
    accepted(scalar $c->append($k, ' two'), 'append');
    same(scalar $c->get($k), 'one two', 'get');
});
check(prepend => sub {
    my $k = shift;
    refused(scalar $c->prepend($k, 'x'), 'prepend to a missing key');
    $c->set($k, 'one');
    accepted(scalar $c->prepend($k, 'two '), 'prepend');
    same(scalar $c->get($k), 'two one', 'get');
});
check(incr => sub {
    my $k = shift;
    refused(scalar $c->incr($k, 1), 'incr of a missing key');
    $c->set($k, '9');
    same(scalar $c->incr($k, 3), 12, 'incr');
});
check(decr => sub {
    my $k = shift;
    refused(scalar $c->decr($k, 1), 'decr of a missing key');
    $c->set($k, '12');
    same(scalar $c->decr($k, 5), 7, 'decr');
    same($c->decr($k, 50) + 0, 0, 'decr below zero');
});
check(cas => sub {
    my $k = shift;
    $c->set($k, 'one');
    my ($number, $value) = @{ $c->gets($k) };
    same($value, 'one', 'gets');
    accepted(scalar $c->cas($k, $number, 'two'), 'cas');
    refused(scalar $c->cas($k, $number, 'three'), 'cas with an old number');
    same(scalar $c->get($k), 'two', 'get');
}) if $fast;
check(touch => sub {
    my $k = shift;
    refused(scalar $c->touch($k, 100), 'touch of a missing key');
    $c->set($k, 'one');
    accepted(scalar $c->touch($k, 1), 'touch');
    gone($k);
}) if $fast;
check(delete => sub {
    my $k = shift;
    refused(scalar $c->delete($k), 'delete of a missing key');
    $c->set($k, 'one');
    accepted(scalar $c->delete($k), 'delete');
    same(scalar $c->get($k), undef, 'get');
});
check(flags => sub {
    my $k = shift;
    $c->set($k, { list => [1, 2, 3] });
    same(ref $c->get($k), 'HASH', 'a structure, known by its flags');
    same("@{ $c->get($k)->{list} }", '1 2 3', 'its content');
});
check(expiry => sub {
    my $k = shift;
    $c->set("$k:stays", 'one', 3600);
    my $before;
    for my $ttl (2, 20, 60) { # the next if this process slept for so long
        $c->set($k, 'one', $ttl);
        last if defined($before = $c->get($k));
    }
    same($before, 'one', 'get before');
    gone($k);
    same(scalar $c->get("$k:stays"), 'one', 'get of another');
});
my @sizes = (['0', 0], ['1', 1], ['100k', 100 << 10], ['1m', 1 << 20]);
for my $size (@sizes) {
    my ($label, $bytes) = @$size;
    check("value-$label" => sub {
        my $k = shift;
        my $value = join '', map { chr int rand 256 } 1 .. $bytes;
        accepted(scalar $c->set($k, $value), 'set');
        same(scalar $c->get($k), $value, 'get');
    });
}
