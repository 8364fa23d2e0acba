<?php
// A session of the extension memcached (libmemcached) with two pools of one cache: HOST:PORT of each are the arguments.
function is($found, $wanted) {
    if ($found !== $wanted) {
        $line = debug_backtrace()[0]["line"];
        fwrite(STDERR, var_export($found, true) . ", not " . var_export($wanted, true) . ", in line $line\n");
        exit(1);
    }
}
function connect($at) {
    [$host, $port] = explode(":", $at);
    $client = new Memcached();
    $client->setOption(Memcached::OPT_POLL_TIMEOUT, 30000);
    $client->setOption(Memcached::OPT_CONNECT_TIMEOUT, 30000);
    $client->addServer($host, (int) $port);
    return $client;
}
[$first, $second] = [connect($argv[1]), connect($argv[2])];

is($first->set("array", ["a" => 1, "b" => [true, null]]), true);
is($second->get("array"), ["a" => 1, "b" => [true, null]]);
is($first->set("long", str_repeat("compressed ", 5000)), true);
is($second->get("long"), str_repeat("compressed ", 5000));
is($second->get("none"), false);
is($second->getResultCode(), Memcached::RES_NOTFOUND);

is($first->add("array", 1), false);
is($first->getResultCode(), Memcached::RES_NOTSTORED);
is($second->replace("array", 2.5), true);
is($first->get("array"), 2.5);

$found = $first->get("array", null, Memcached::GET_EXTENDED);
is($second->cas($found["cas"], "array", "new"), true);
is($first->cas($found["cas"], "array", "late"), false);
is($first->getResultCode(), Memcached::RES_DATA_EXISTS);

is($first->set("count", 5), true);
is($second->increment("count", 10), 15);
is($first->decrement("count", 20), 0);
is($first->increment("none"), false);

$all = [];
for ($nth = 0; $nth < 100; $nth++) {
    $all["many-$nth"] = "value $nth";
}
is($first->setMulti($all), true);
$found = $second->getMulti(array_keys($all));
ksort($found);
ksort($all);
is($found, $all);

is($first->touch("array", 100), true);
is($second->delete("array"), true);
is($first->delete("array"), false);
is($first->set("soon", "gone", 1), true);
is(count($second->getStats()), 1);

// A callback fills what is missing, and the other pool has it then.
$fill = fn($client, $key, &$value) => ($value = "filled $key") !== null;
is($first->get("filled", $fill), "filled filled");
is($second->get("filled"), "filled filled");
is($first->flush(), true);
is($second->get("long"), false);
echo "done\n";
