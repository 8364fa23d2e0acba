"""Writes prices by drivers that speak the extended protocol: values in binary, prepared statements, pipelines."""

import asyncio
import sys

import asyncpg
import psycopg

at = dict(host=sys.argv[1], port=int(sys.argv[2]), user="shop", password="secret")


async def main():
    database = await asyncpg.connect(database=sys.argv[3], **at)
    await database.execute("UPDATE products SET price = $2 WHERE id = $1", 1, 101)
    async with database.transaction():
        await database.executemany("UPDATE products SET price = $2 WHERE id = $1", [(2, 201), (2, 202)])
    print([tuple(row) for row in await database.fetch("SELECT id, price FROM products WHERE id = $1", 2)])
    await database.close()


asyncio.run(main())
with psycopg.connect(dbname=sys.argv[3], **at) as database, database.pipeline():
    database.execute("UPDATE products SET price = %s WHERE id = %s", (301, 3))
    print(database.execute("SELECT id, price FROM products WHERE id = %s", (3,)).fetchall())
