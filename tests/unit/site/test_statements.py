"""Reading a defined statement: which `:name` is a parameter, and which text is no write at all."""

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.site.config.statements import STATEMENT_BYTES_MAX, Dialect, parse_statement

POSTGRESQL = [
    ("INSERT INTO t VALUES (:a, :b, :a)", "INSERT INTO t VALUES ($1, $2, $1)", "a b"),
    ("UPDATE t SET a=:a::int WHERE b = x::text", "UPDATE t SET a=$1::int WHERE b = x::text", "a"),
    ("SELECT f(n := :n)", "SELECT f(n := $1)", "n"),
    ("SELECT f(n:=:n)", "SELECT f(n:=$1)", "n"),
    ("INSERT INTO t VALUES (':a', :a, 'it''s :b')", "INSERT INTO t VALUES (':a', $1, 'it''s :b')", "a"),
    (r"INSERT INTO t VALUES (E'it\'s :b', :a)", r"INSERT INTO t VALUES (E'it\'s :b', $1)", "a"),
    (r"INSERT INTO t VALUES (e'\\', :a, ':b')", r"INSERT INTO t VALUES (e'\\', $1, ':b')", "a"),
    (r"INSERT INTO t VALUES ('\', :a, ':b')", r"INSERT INTO t VALUES ('\', $1, ':b')", "a"),
    ('UPDATE "t:a" SET "b""c:d" = :a', 'UPDATE "t:a" SET "b""c:d" = $1', "a"),
    ("UPDATE t SET a = :a -- not :b\n, c = :c", "UPDATE t SET a = $1 -- not :b\n, c = $2", "a c"),
    ("UPDATE t SET a = :a -- the end", "UPDATE t SET a = $1 -- the end", "a"),
    ("UPDATE t /* :b /* nested */ :c */ SET a = :a", "UPDATE t /* :b /* nested */ :c */ SET a = $1", "a"),
    ("SELECT f($$ :b ; $$, :a)", "SELECT f($$ :b ; $$, $1)", "a"),
    ("SELECT f($x$ $$ :b $y$ $x$, :a)", "SELECT f($x$ $$ :b $y$ $x$, $1)", "a"),
    ("SELECT f(a$b$, :a, c$b$)", "SELECT f(a$b$, $1, c$b$)", "a"),
    ("UPDATE t SET a[1] = :a, b = b ? 'x' AND c @> :c", "UPDATE t SET a[1] = $1, b = b ? 'x' AND c @> $2", "a c"),
    ("\n -- why\n/* so */ insert into t values (:a) ;\n-- end\n", None, "a"),
    ("MERGE INTO t USING u ON t.id = :id WHEN MATCHED THEN DO NOTHING", None, "id"),
    ("WITH x AS (SELECT :a) INSERT INTO t SELECT * FROM x", None, "a"),
    ("CALL count(:_a1, :A1)", "CALL count($1, $2)", "_a1 A1"),
    ("DELETE FROM t WHERE at < now() - interval '1 day'", None, ""),
]
SQLITE = [
    ("INSERT INTO t VALUES (:a, :b, :a)", "INSERT INTO t VALUES (?1, ?2, ?1)", "a b"),
    ("REPLACE INTO [t:a] VALUES (:a, `b:c`)", "REPLACE INTO [t:a] VALUES (?1, `b:c`)", "a"),
    (r"INSERT INTO t VALUES (E'\', :a, ':b')", r"INSERT INTO t VALUES (E'\', ?1, ':b')", "a"),
    ("UPDATE t /* a /* b */ SET a = :a /* c */", "UPDATE t /* a /* b */ SET a = ?1 /* c */", "a"),
    ("INSERT INTO t VALUES ('$x ? @y', :a);", "INSERT INTO t VALUES ('$x ? @y', ?1)", "a"),
]


@pytest.mark.parametrize(
    ("dialect", "text", "sql", "names"),
    [("postgresql", *case) for case in POSTGRESQL] + [("sqlite", *case) for case in SQLITE],
)
def test_parameters_are_numbered_and_the_rest_is_unchanged(
    dialect: Dialect, text: str, sql: str | None, names: str
) -> None:
    statement = parse_statement(text, dialect)
    assert list(statement.parameters) == names.split()
    if sql is not None:
        assert statement.sql == sql


def test_call_id_is_a_built_in_parameter() -> None:
    statement = parse_statement("INSERT INTO t VALUES (:call_id, :a)", "sqlite")
    assert statement.parameters == ("call_id", "a")
    assert statement.given == {"a"}


@pytest.mark.threat(26)
@pytest.mark.parametrize(
    ("dialect", "text", "rule"),
    [
        ("postgresql", "INSERT INTO t VALUES (1); DROP TABLE t", "one statement"),
        ("sqlite", "INSERT INTO t VALUES (1);DROP TABLE t", "one statement"),
        ("sqlite", "INSERT INTO t VALUES (1); ATTACH 'x' AS y;", "one statement"),
        ("postgresql", "COMMIT", "must start with"),
        ("postgresql", "ROLLBACK; INSERT INTO t VALUES (1)", "must start with"),
        ("postgresql", "SET ROLE postgres", "must start with"),
        ("postgresql", "COPY t TO PROGRAM 'sh'", "must start with"),
        ("postgresql", "DROP TABLE t", "must start with"),
        ("postgresql", "(SELECT 1)", "must start with"),
        ("sqlite", "PRAGMA writable_schema = 1", "must start with"),
        ("sqlite", "ATTACH 'other.db' AS other", "must start with"),
        ("sqlite", "/* INSERT */ VACUUM", "must start with"),
        ("sqlite", "'INSERT' INTO t", "must start with"),
        ("sqlite", "", "is empty"),
        ("sqlite", " -- nothing\n ; ", "is empty"),
        ("postgresql", "INSERT INTO t VALUES ($1)", "written :name"),
        ("sqlite", "INSERT INTO t VALUES (?)", "written :name"),
        ("sqlite", "INSERT INTO t VALUES (?1)", "written :name"),
        ("sqlite", "INSERT INTO t VALUES (:1)", "written :name"),
        ("sqlite", "INSERT INTO t VALUES (@a)", "written :name"),
        ("sqlite", "INSERT INTO t VALUES ($a)", "written :name"),
        ("sqlite", "INSERT INTO t VALUES (:ä)", "letters, digits"),
        ("sqlite", "INSERT INTO t VALUES ('a)", "not closed"),
        ("sqlite", 'INSERT INTO "t VALUES (1)', "not closed"),
        ("sqlite", "INSERT INTO [t VALUES (1)", "not closed"),
        ("sqlite", "INSERT INTO t /* VALUES (1)", "not closed"),
        ("postgresql", "INSERT INTO t /* /* */ VALUES (1)", "not closed"),
        ("postgresql", r"INSERT INTO t VALUES (E'\')", "not closed"),
        ("postgresql", "SELECT f($a$ x $b$)", "not closed"),
        ("sqlite", "INSERT INTO t VALUES (\x00)", "NUL"),
        ("sqlite", "INSERT INTO t VALUES ('\ud800')", "surrogate"),
        ("sqlite", "INSERT INTO t VALUES (1)" + " " * STATEMENT_BYTES_MAX, "at most"),
        ("sqlite", "INSERT " + ",".join(f":p{number}" for number in range(1001)), "more than 1000"),
        ("sqlite", 7, "must be a string"),
    ],
)
def test_anything_but_a_single_write_with_named_parameters_is_rejected(
    dialect: Dialect, text: object, rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule) as caught:
        parse_statement(text, dialect, "statements.count")
    assert caught.value.field == "statements.count"
