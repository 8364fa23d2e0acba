//! What a statement reads and touches, for people who ask.

use verbena_statements::{Effect, Names};

use crate::address::{Address, Product};
use crate::catalog::Catalog;
use crate::error::DatabaseError;
use crate::search::path;
use crate::watch::not_stored;

/// What is known of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What a page depends on that shows its answer, before the rows that it finds: a name each, or `everything`.
    pub reads: Vec<String>,
    /// The columns of the answer, from 1 on, that carry primary keys: each row that is found is a name more.
    pub keys: Vec<Vec<usize>>,
    /// What it touches, likewise.
    pub touches: Vec<String>,
    /// Whether it is held until every home knows, outside and inside a transaction.
    pub is_held: [bool; 2],
    /// Why a page that shows its answer may not be stored; nothing if it may.
    pub not_stored: Option<String>,
    /// Why it reads or touches everything.
    pub reasons: Vec<String>,
}

/// Looks at a statement under the catalog of a database.
///
/// # Errors
/// The catalog cannot be read.
pub async fn explain(address: &Address, default: Option<&str>, statement: &[u8]) -> Result<Explanation, DatabaseError> {
    let refused = |problem| DatabaseError::Setting { key: "to", problem };
    let catalog = Catalog::read(address).await?;
    let search: Vec<Vec<u8>> = match (address.product, default) {
        (Product::MySql, _) => {
            let default = default.or(address.database.as_deref());
            default.iter().map(|default| default.as_bytes().to_vec()).collect()
        }
        (Product::PostgreSql, default) => {
            let unknown = |problem: &str| refused(problem.to_owned());
            let set = default.map(|text| path(text.as_bytes()).ok_or_else(|| unknown("--in is no search path")));
            let user = address.user.as_deref().unwrap_or_default();
            let paths = &catalog.paths;
            let search = paths.search(&paths.database, user.as_bytes(), set.transpose()?.as_ref());
            search
                .ok_or_else(|| unknown("where sessions of this user look for tables is not known: say it with --in"))?
        }
    };
    let has_default = address.product == Product::PostgreSql || !search.is_empty();
    let mut analysis = catalog.analyser(search).analyse(&catalog.dialect, statement, &[]);
    let reads = analysis.reads.clone();
    let is_everything = reads.is_everything() || analysis.touches == Names::Everything;
    if is_everything && !has_default {
        let why = "the session has no default database, so a table without the name of its database is not known: name one with --in, or in the address";
        analysis.reasons.push(why.to_owned());
    }
    let touches = match analysis.effect {
        Effect::None if analysis.touches != Names::Everything => Vec::new(),
        _ => said(&analysis.touches),
    };
    Ok(Explanation {
        reads: said(&reads.bounded(reads.start())),
        keys: reads.keys().iter().map(|key| key.iter().map(|place| place + 1).collect()).collect(),
        touches,
        is_held: [analysis.is_held(false), analysis.is_held(true)],
        not_stored: not_stored(analysis.storable),
        reasons: analysis.reasons.clone(),
    })
}

/// Names as people read them: `shop.products.id=7`.
pub(crate) fn said(names: &Names) -> Vec<String> {
    let Names::Of(tables) = names else { return vec!["everything".into()] };
    let all = tables.iter().flat_map(|(table, set)| set.iter().map(move |name| (table, name)));
    all.map(|(table, name)| format!("{}: {name}", spoken(table))).collect()
}

/// The name of a table, for people.
pub(crate) fn spoken(table: &[u8]) -> String {
    String::from_utf8_lossy(table).replace('\0', ".")
}
