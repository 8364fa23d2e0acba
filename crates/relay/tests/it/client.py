"""Statements by PyMySQL; prints what comes. Arguments: `unix:PATH` or `tcp:PORT`, a database, a file to load."""
import sys

import pymysql
from pymysql.constants import CLIENT

where, database, path = sys.argv[1:4]
kind, _, address = where.partition(":")
at = {"unix_socket": address} if kind == "unix" else {"host": "127.0.0.1", "port": int(address)}


def connect(**more):
    return pymysql.connect(user="app", password="secret", local_infile=True,
                           client_flag=CLIENT.MULTI_STATEMENTS, **at, **more)


def run(cursor, text, arguments=None):
    try:
        cursor.execute(text, arguments)
        while True:
            names = [column[0] for column in cursor.description or ()]
            print(text[:50], "->", names, cursor.rowcount, cursor.fetchall(), cursor.lastrowid)
            if not cursor.nextset():
                return
    except pymysql.MySQLError as error:
        print(text[:50], "->", error.args)


alone = connect(autocommit=True)
cursor = alone.cursor()
alone.select_db(database)
run(cursor, "create table t (a int auto_increment primary key, b varchar(100), c blob) engine=innodb")
run(cursor, "create table files_myisam (a int, b text) engine=myisam")
run(cursor, "insert into t (b, c) values ('x_alone', %s), ('y', null)", (b"\x00\xff'\\",))
run(cursor, "select * from t")
run(cursor, "insert into t values (1, 'twice_alone', '')")
run(cursor, "nonsense")
run(cursor, "select 1; select b from t; update t set b = 'z_alone' where a = 2; select b from t")
run(cursor, "select 1; nonsense; select 2")
run(cursor, "create procedure p() begin select 1; select 2, 'p'; end")
run(cursor, "call p()")
run(cursor, "begin")
run(cursor, "insert into t (b) values ('inside')")
run(cursor, "insert into files_myisam values (1, 'stays')")
run(cursor, "savepoint s")
run(cursor, "delete from t")
run(cursor, "rollback to s")
run(cursor, "select count(*) from t")
run(cursor, "rollback")
run(cursor, "select count(*) from t")
run(cursor, "select * from files_myisam")
run(cursor, "load data local infile %s into table files_myisam", (path,))
run(cursor, "select count(*), sum(a) from files_myisam")
run(cursor, "load data local infile '/nowhere/at/all' into table files_myisam")
run(cursor, "alter table t add column d int default 7")
for long in ("select repeat('long', 100000)", "select x'" + "ab" * 100000 + "'"):
    cursor.execute(long)
    print(hash(cursor.fetchone()) == hash((("long" * 100000) if "repeat" in long else b"\xab" * 100000,)))
alone.ping()
streaming = alone.cursor(pymysql.cursors.SSCursor)
streaming.execute("select seq from seq_1_to_10000")
print(sum(row[0] for row in streaming))

# PyMySQL switches autocommit off when it connects.
other = connect(database=database)
cursor = other.cursor()
for number in range(20):
    run(cursor, "insert into t (b) values (%s)", (f"row {number}",))
    (other.rollback if number % 5 == 0 else other.commit)()
run(cursor, "select a, b, d from t order by a")
run(cursor, "xa start 'x'")
other.rollback()
other.close()
try:
    pymysql.connect(user="app", password="wrong", **at)
except pymysql.MySQLError as error:
    print(error.args[0])
print(alone.cursor().execute("select * from t where a < 3"))
