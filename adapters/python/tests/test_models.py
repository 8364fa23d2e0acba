"""Statements of Django, and what is read in them. Run in a process of its own: Django is configured once in a process."""

from __future__ import annotations

import subprocess
import sys

STATEMENTS = r'''
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()
from django.db import connection, models
from verbena import Unavailable, _models

class Shelf(models.Model):
    name = models.CharField(max_length=9)
    class Meta:
        app_label = "shop"

class Book(models.Model):
    shelf = models.ForeignKey(Shelf, models.CASCADE)
    pages = models.IntegerField(default=0)
    class Meta:
        app_label = "shop"

class View(models.Model):
    class Meta:
        app_label = "shop"
        managed = False

class Told:
    def __init__(self): self.touched, self.ended, self.broken = [], [], None
    def begin(self, touched):
        if self.broken: raise self.broken
        self.touched.append(touched)
        return self
    def end(self, outcome): self.ended.append(outcome)
    end_quietly = end

_models.watch()
_models.watch()
assert len(connection.execute_wrappers) <= 1
with connection.schema_editor() as editor:
    editor.create_model(Shelf)
    editor.create_model(Book)

def seen(work):
    told = Told()
    record = _models.Record(told)
    token = _models.begin(record)
    try:
        work()
    finally:
        _models.end(token)
    record.end("done")
    assert told.ended == ["done"] * len(told.touched)
    return record.names(), told.touched

def cursor(sql, params=()):
    with connection.cursor() as opened:
        opened.execute(sql, params)

ALL = [["shop_shelf", "shop_shelf:*", "shop_shelf:+"]]
NONE = ["shop_shelf:*", "shop_shelf:+", "shop_shelf:9"]
one, two = Shelf.objects.create(name="a"), Shelf.objects.create(name="b")
Book.objects.create(shelf=one)
checks = [
    # What is read.
    (lambda: Shelf.objects.get(pk=1), ["shop_shelf:*", "shop_shelf:1"], []),
    (lambda: Shelf.objects.in_bulk([1, 2]), ["shop_shelf:*", "shop_shelf:1", "shop_shelf:2"], []),
    (lambda: Shelf.objects.filter(pk=9).first(), NONE, []),
    (lambda: (Shelf.objects.filter(pk=9).first(), Shelf(pk=9)), NONE, []),
    (lambda: list(Shelf.objects.all()), ["shop_shelf"], []),
    (lambda: Shelf.objects.filter(pk=1).exists(), ["shop_shelf"], []),
    (lambda: Shelf.objects.filter(pk=1).count(), ["shop_shelf"], []),
    (lambda: list(Shelf.objects.filter(name__icontains="a")), ["shop_shelf"], []),
    (lambda: list(Book.objects.select_related("shelf").filter(pk=1)), ["shop_book", "shop_shelf"], []),
    (lambda: list(Book.objects.prefetch_related("shelf")), ["shop_book", "shop_shelf:*", "shop_shelf:1"], []),
    (lambda: list(Book.objects.filter(shelf__name="a").union(Book.objects.all())), ["shop_book", "shop_shelf"], []),
    (lambda: list(Shelf.objects.filter(models.Exists(Book.objects.filter(shelf=models.OuterRef("pk"))))), ["shop_book", "shop_shelf"], []),
    (lambda: cursor("select 1"), [], []),
    (lambda: cursor("select * from shop_shelf join shop_book on shop_book.shelf_id = shop_shelf.id"), ["shop_book", "shop_shelf"], []),
    # What may be anything.
    (lambda: cursor("select * from sqlite_master"), None, []),
    (lambda: cursor("select * from shop_shelf, shop_book"), None, []),
    (lambda: cursor("select * from shop_shelf where name = 'from x'"), None, []),
    (lambda: cursor("with x as (select * from shop_shelf) select * from x"), None, []),
    (lambda: cursor("select random()"), None, []),
    # What is written.
    (lambda: Shelf(pk=1, name="c").save(force_update=True), ["shop_shelf"], [["shop_shelf", "shop_shelf:1"]]),
    (lambda: Shelf.objects.filter(pk=1).update(name="d"), ["shop_shelf"], [["shop_shelf", "shop_shelf:1"]]),
    (lambda: Book.objects.filter(pk=1).update(pages=models.F("pages") + 1), ["shop_book"], [["shop_book", "shop_book:1"]]),
    (lambda: Shelf.objects.filter(name="d").update(name="e"), ["shop_shelf"], ALL),
    (lambda: Shelf.objects.filter(pk=2).update(id=3), ["shop_shelf"], ALL),
    (lambda: Shelf.objects.create(name="f"), ["shop_shelf"], [["shop_shelf", "shop_shelf:+"]]),
    (lambda: Shelf.objects.bulk_create([Shelf(pk=3, name="g")], update_conflicts=True, update_fields=["name"], unique_fields=["id"]), None, [_models.EVERYTHING]),
    (lambda: Book.objects.all().delete(), ["shop_book"], [["shop_book", "shop_book:*", "shop_book:+"]]),
    (lambda: cursor("replace into shop_shelf (id, name) values (1, %s)", ["h"]), ["shop_shelf"], ALL),
    (lambda: cursor("create table other (a)"), None, [_models.EVERYTHING]),
    (lambda: cursor("insert into other values (1)"), None, [_models.EVERYTHING]),
    (lambda: cursor("update shop_shelf set name = %s where id = %s", ["i", 1]), ["shop_shelf"], ALL),
]
wrong = []
for number, (work, names, touched) in enumerate(checks):
    found = seen(work)
    if found != (names, touched):
        wrong.append((number, found, names, touched))
assert not wrong, "\n".join(map(str, wrong))

# One update for two writes of one row.
def twice():
    for name in "jk":
        Shelf(pk=1, name=name).save(force_update=True)
assert seen(twice)[1] == [["shop_shelf", "shop_shelf:1"]]

# What cannot be announced is not run.
told = Told()
told.broken = Unavailable("no lease")
try:
    with _models.announced(told):
        Shelf.objects.all().delete()
    raise SystemExit("not refused")
except Unavailable:
    pass
assert Shelf.objects.count() > 0
print(len(checks))
'''


def test_statements_of_django() -> None:
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", STATEMENTS], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr[-2000:]
    assert int(said.stdout) >= 30
