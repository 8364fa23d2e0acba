# A session of pymemcache with two pools of one cache: HOST:PORT of each are the arguments.
import sys
import threading

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError
from pymemcache.serde import pickle_serde

one, two = (tuple(at.rsplit(":", 1)) for at in sys.argv[1:3])
one, two = (one[0], int(one[1])), (two[0], int(two[1]))
first = Client(one, default_noreply=False, serde=pickle_serde, timeout=30, connect_timeout=30)
second = Client(two, default_noreply=False, serde=pickle_serde, timeout=30, connect_timeout=30)


def is_(found, wanted):
    if found != wanted:
        raise SystemExit(f"{found!r}, not {wanted!r}, in line {sys._getframe(1).f_lineno}")


is_(first.set("text", "grüße"), True)
is_(second.get("text"), "grüße")
is_(first.set("tree", {"a": [1, 2, 3], "b": None}), True)
is_(second.get("tree"), {"a": [1, 2, 3], "b": None})
is_(first.set("bytes", bytes(range(256)) * 100), True)
is_(second.get("bytes"), bytes(range(256)) * 100)
is_(second.get("none"), None)
is_(second.get("none", default=7), 7)

is_(first.add("text", "again"), False)
is_(first.add("new", "once"), True)
is_(second.replace("none", "x"), False)
is_(second.replace("new", "twice"), True)
is_(first.get("new"), "twice")

raw = [Client(at, default_noreply=False, timeout=30, connect_timeout=30) for at in (one, two)]
is_(raw[0].set("line", b"b"), True)
is_(raw[1].append("line", b"c"), True)
is_(raw[1].prepend("line", b"a"), True)
is_(raw[0].get("line"), b"abc")

value, cas = second.gets("text")
is_(first.cas("text", "changed", cas), True)
is_(second.cas("text", "late", cas), False)
is_(second.cas("none", "x", cas), None)
is_(second.get("text"), "changed")

is_(raw[0].set("count", b"41"), True)
is_(raw[1].incr("count", 1), 42)
is_(raw[0].decr("count", 50), 0)
is_(raw[0].incr("none", 1), None)

many = {f"many-{nth}": f"value {nth}" for nth in range(200)}
is_(first.set_many(many), [])
is_(second.get_many(list(many)), many)
is_(second.delete_many(list(many)[:100]), True)
is_(len(first.get_many(list(many))), 100)

is_(first.touch("new", 100), True)
is_(second.touch("none", 100), False)
is_(second.get("new"), "twice")
is_(first.delete("new"), True)
is_(second.delete("new"), False)
for bad in ("with space", "x" * 251, "line\n"):
    try:
        raw[0].get(bad)
        raise SystemExit(f"{bad!r} is a key")
    except MemcacheIllegalInputError:
        pass
try:
    raw[0].incr("line", 1)
    raise SystemExit("letters are a number")
except MemcacheClientError:
    pass
is_(raw[0].get("line"), b"abc")

def count(pool, forgotten):
    done = 0
    for _ in range(100_000):
        if done == 50 or forgotten.is_set():
            return
        try:
            if pool.incr("shared", 1) is None:
                # A cache may forget, at any time.
                forgotten.set()
            done += 1
        except MemcacheServerError as error:
            # Others were faster again and again: nothing was changed.
            if b"nothing was changed" not in error.args[0]:
                raise
    forgotten.set()


# Many threads count one key through both pools.
pools = [PooledClient(at, max_pool_size=4, default_noreply=False, timeout=30, connect_timeout=30) for at in (one, two)]
for _ in range(10):
    is_(raw[0].set("shared", b"0"), True)
    forgotten = threading.Event()
    threads = [threading.Thread(target=count, args=(pool, forgotten)) for pool in pools * 4]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if not forgotten.is_set():
        is_(raw[1].get("shared"), b"400")
        break
else:
    raise SystemExit("what is counted is forgotten each time")

# A client that spreads keys over servers finds each at both.
spread = HashClient([one, two], default_noreply=False, timeout=30, connect_timeout=30)
is_(all(spread.set(f"spread-{nth}", str(nth)) for nth in range(50)), True)
is_([raw[0].get(f"spread-{nth}") for nth in range(50)], [str(nth).encode() for nth in range(50)])

is_(b"version" in first.stats(), True)
is_(first.flush_all(), True)
is_(second.get("text"), None)
is_(first.version().startswith(b"1.6."), True)
print("done")
