//! `verbena database explain`: what a statement reads and touches.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use verbena_database::{DatabaseError, Explanation, explain};

use crate::commands::running;
use crate::config::{self, Flags, Whose};
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Show what a statement reads and touches under the catalog of the database, and why.
///
/// A page that shows the answer of a statement depends on what the statement reads, and on each row of the answer if that has the primary key. A commit takes
/// those pages out of the cache that depend on something which it touches.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena database explain --database-to mysql://shop:secret@127.0.0.1:3306 --in shop 'SELECT * FROM products WHERE id = 7'
  verbena database explain --database-to postgres://shop:secret@127.0.0.1:5432/shop 'SELECT * FROM products WHERE id = 7'
  verbena database explain --in shop 'UPDATE products SET price = 3 WHERE id = 7'")]
pub struct Explain {
    /// The statement.
    #[arg(value_name = "SQL")]
    statement: String,
    /// The default database of the session; of PostgreSQL its search path. Without it the database in the address.
    #[arg(long = "in", value_name = "DATABASE")]
    default: Option<String>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Serialize)]
struct Shown<'a> {
    reads: &'a [String],
    key_columns: &'a [Vec<usize>],
    touches: &'a [String],
    held_outside_a_transaction: bool,
    held_inside_a_transaction: bool,
    not_stored: Option<&'a str>,
    reasons: &'a [String],
}

impl Explain {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let config = config::load(file, &self.flags.0, Whose::Everyones)?.config.database;
        let none = || {
            DatabaseError::Setting {
            key: "to",
            problem: "no database: give --database-to mysql://USER@HOST:PORT or postgres://USER@HOST:PORT/DATABASE, or write it into the configuration"
                .into(),
        }
        };
        let address = config.address()?.ok_or_else(none)?;
        running::block_on(async {
            let explanation = explain(&address, self.default.as_deref(), self.statement.as_bytes()).await?;
            print(&explanation, &self.format)
        })
    }
}

fn print(explanation: &Explanation, format: &Format) -> Result<()> {
    let mut out = output();
    let Explanation { reads, keys, touches, is_held: [outside, inside], not_stored, reasons } = explanation;
    if format.json {
        let shown = Shown {
            reads,
            key_columns: keys,
            touches,
            held_outside_a_transaction: *outside,
            held_inside_a_transaction: *inside,
            not_stored: not_stored.as_deref(),
            reasons,
        };
        return write_json(&mut out, &shown);
    }
    for (what, names) in [("reads", reads), ("touches", touches)] {
        for name in names {
            writeln!(out, "{what:<8} {name}")?;
        }
    }
    for key in keys {
        let places: Vec<String> = key.iter().map(usize::to_string).collect();
        writeln!(out, "reads    each row that it finds, by its key in column {} of the answer", places.join(", "))?;
    }
    let held = match (outside, inside) {
        (true, true) => "until every home knows",
        (true, false) => "until every home knows, outside a transaction; inside one the COMMIT is",
        (false, true) => "until every home knows, inside a transaction",
        (false, false) => "not",
    };
    writeln!(out, "held     {held}")?;
    match not_stored {
        Some(why) => writeln!(out, "stored   not: {why}")?,
        None => writeln!(out, "stored   a page that shows its answer may be")?,
    }
    for reason in reasons {
        writeln!(out, "because  {reason}")?;
    }
    Ok(())
}
