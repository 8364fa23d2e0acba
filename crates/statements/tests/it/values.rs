//! Rule Q17.

use verbena_statements::{ColumnType, Literal, Rules, canonical};

fn form(column: ColumnType, literal: Literal<'_>) -> Option<Vec<u8>> {
    canonical(Rules::default(), column, literal)
}

#[test]
fn an_integer_has_one_form() {
    for (text, expected) in [("7", "7"), ("007", "7"), ("-0", "0"), ("000", "0"), ("-012", "-12")] {
        for literal in [Literal::Number(text.as_bytes()), Literal::Text(text.as_bytes())] {
            assert_eq!(form(ColumnType::Integer, literal).as_deref(), Some(expected.as_bytes()), "{text}");
        }
    }
    let off = Rules { exact: false, ..Rules::default() };
    assert_ne!(
        canonical(off, ColumnType::Integer, Literal::Text(b"07")),
        canonical(off, ColumnType::Integer, Literal::Number(b"7")),
        "without the rule, values that are equal for the database have two names"
    );
}

#[test]
fn what_the_database_converts_has_no_name() {
    for text in ["", "-", "7a", "7.0", "7e0", "+7", " 7", "0x7", "9999999999999999999"] {
        assert_eq!(form(ColumnType::Integer, Literal::Number(text.as_bytes())), None, "{text}");
    }
    // 2^53 + 1 as a text equals 2^53 in MySQL.
    assert_eq!(form(ColumnType::Integer, Literal::Text(b"9007199254740993")), None);
    assert_eq!(form(ColumnType::Bytes, Literal::Number(b"7")), None);
    assert_eq!(form(ColumnType::Other, Literal::Text(b"7")), None);
    assert_eq!(form(ColumnType::Bytes, Literal::Text(b"\xff\0 ")).as_deref(), Some(&b"\xff\0 "[..]));
}
