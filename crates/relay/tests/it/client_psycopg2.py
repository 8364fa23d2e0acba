"""Statements by psycopg2; prints what comes. Arguments: the directory of the socket, a table."""
import io
import sys

import psycopg2

where, table = sys.argv[1:3]


def connect():
    return psycopg2.connect(host=where, user="app", password="secret", dbname="postgres")


connection = connect()
cursor = connection.cursor()


def run(text, arguments=None):
    try:
        cursor.execute(text, arguments)
        rows = cursor.fetchall() if cursor.description else ()
        values = [[bytes(value) if isinstance(value, memoryview) else value for value in row] for row in rows]
        print(text[:50], "->", cursor.statusmessage, values)
    except psycopg2.Error as error:
        print(text[:50], "->", error.pgcode, str(error))


run(f"create table {table} (a serial primary key, b text, c bytea)")
connection.commit()
for number in range(20):
    run(f"insert into {table} (b, c) values (%s, %s) returning a", (f"row {number}", b"\x00\xff'"))
    (connection.rollback if number % 5 == 0 else connection.commit)()
run(f"select * from {table} order by a")
run("nonsense")
run("select 1")
connection.rollback()
connection.autocommit = True
run(f"insert into {table} (b) values ('one_alone')")
cursor.copy_expert(f"copy {table} (a, b) from stdin", io.StringIO("".join(f"{a}\tline\n" for a in range(100, 30000))))
run(f"select count(*), sum(a) from {table}")
out = io.StringIO()
cursor.copy_expert(f"copy {table} to stdout", out)
print(len(out.getvalue()))
connection.autocommit = False
named = connection.cursor("named")
named.itersize = 1000
named.execute(f"select a from {table}")
print(sum(row[0] for row in named))
connection.commit()
cursor.execute("select repeat('x', 3000000)")
print(len(cursor.fetchone()[0]))
other = connect()
other.set_session(isolation_level="SERIALIZABLE")
cursor = other.cursor()
run(f"update {table} set b = 'z' where a = 5")
other.commit()
print(other.notices)
run(f"drop table {table}")
other.rollback()
try:
    psycopg2.connect(host=where, user="app", password="wrong", dbname="postgres")
except psycopg2.OperationalError as error:
    print("password authentication failed" in str(error))
connection.close()
