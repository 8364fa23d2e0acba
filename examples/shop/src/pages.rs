//! The pages: each made in one read transaction, with the names of the data that it was made of.

use std::fmt::Write;

use rusqlite::{OptionalExtension, Row, Transaction};

use crate::database::{Database, Error, Failure};

/// A page, and what it was made of.
#[derive(Clone, Debug)]
pub struct Page {
    /// The state of the database that it shows.
    pub commit: i64,
    /// HTML.
    pub html: String,
    /// The data that it shows, or would show if it were there: the same names as [`Change::touches`](crate::Change::touches) gives.
    pub dependencies: Vec<String>,
}

/// The front page, in ten parts.
pub fn front(database: &Database) -> Result<Page, Error> {
    page(database, "Verbena's shop", |read, html| {
        list(read, html, "Newest", "ORDER BY id DESC LIMIT 8")?;
        list(read, html, "Cheapest", "ORDER BY price_cents, id LIMIT 8")?;
        list(read, html, "Dearest", "ORDER BY price_cents DESC, id LIMIT 8")?;
        list(read, html, "Almost gone", "WHERE stock > 0 ORDER BY stock, id LIMIT 8")?;
        list(read, html, "Plenty", "ORDER BY stock DESC, id LIMIT 8")?;
        list(read, html, "Just changed", "ORDER BY changed DESC, id LIMIT 8")?;
        list(read, html, "Best sellers", "WHERE sold > 0 ORDER BY sold DESC, id LIMIT 8")?;
        html.push_str("<section><h2>Just sold</h2><ul>");
        let mut sales = read.prepare_cached(
            "SELECT name, quantity, sale.price_cents FROM sale JOIN product ON product.id = sale.product
             ORDER BY sale.id DESC LIMIT 8",
        )?;
        let mut rows = sales.query([])?;
        while let Some(row) = rows.next()? {
            let (name, quantity, cents): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            put!(html, "<li>{quantity} {} at {}</li>", escaped(&name), money(cents));
        }
        html.push_str("</ul></section><section><h2>Categories</h2><ul>");
        let mut categories = read.prepare_cached(
            "SELECT id, name, changed, (SELECT count(*) FROM product WHERE category = category.id) FROM category ORDER BY id",
        )?;
        let mut rows = categories.query([])?;
        while let Some(row) = rows.next()? {
            let (id, name, changed, count): (i64, String, i64, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let name = escaped(&name);
            put!(
                html,
                "<li data-row=\"category:{id}\" data-changed=\"{changed}\"><a href=\"/category/{id}\">{name}</a> ({count})</li>"
            );
        }
        let totals = "SELECT count(*), sum(stock), sum(price_cents * stock), max(changed) FROM product";
        let (products, pieces, worth, changed): (i64, i64, i64, i64) =
            read.query_row(totals, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        put!(
            html,
            "</ul></section><section data-row=\"catalogue\" data-changed=\"{changed}\"><h2>In all</h2>\
             {products} products, {pieces} pieces, {}</section>",
            money(worth)
        );
        Ok(vec!["catalogue".into()])
    })
}

/// The products of a category.
pub fn category(database: &Database, id: i64) -> Result<Page, Error> {
    page(database, "Category", |read, html| {
        let sql = "SELECT name, changed FROM category WHERE id = ?1";
        let found = read.query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (name, changed): (String, i64) = found.ok_or(Error::Missing { what: "category", id })?;
        put!(html, "<section data-row=\"category:{id}\" data-changed=\"{changed}\"><h2>{}</h2><ul>", escaped(&name));
        let mut dependencies = vec![format!("category:{id}")];
        let mut products = read.prepare_cached(&format!("{PRODUCT} WHERE category = ?1 ORDER BY id"))?;
        let mut rows = products.query([id])?;
        while let Some(row) = rows.next()? {
            dependencies.push(format!("product:{}", row.get::<_, i64>(0)?));
            item(html, row)?;
        }
        html.push_str("</ul></section>");
        Ok(dependencies)
    })
}

/// One product.
pub fn product(database: &Database, id: i64) -> Result<Page, Error> {
    page(database, "Product", |read, html| {
        html.push_str("<ul>");
        let found = read.query_row(&format!("{PRODUCT} WHERE id = ?1"), [id], |row| item(html, row)).optional()?;
        found.ok_or(Error::Missing { what: "product", id })?;
        let text: String = read.query_row("SELECT text FROM product WHERE id = ?1", [id], |row| row.get(0))?;
        put!(html, "</ul><p>{}</p>", escaped(&text));
        Ok(vec![format!("product:{id}")])
    })
}

/// What a customer has put into the cart, at today's prices.
pub fn cart(database: &Database, customer: i64) -> Result<Page, Error> {
    page(database, "Cart", |read, html| {
        let sql = "SELECT changed FROM cart WHERE customer = ?1";
        let changed: Option<i64> = read.query_row(sql, [customer], |row| row.get(0)).optional()?;
        put!(html, "<section data-row=\"cart:{customer}\" data-changed=\"{}\"><ul>", changed.unwrap_or(1));
        let mut dependencies = vec![format!("cart:{customer}")];
        let mut lines = read.prepare_cached(
            "SELECT product.id, product.name, price_cents, stock, product.changed, quantity
             FROM cart_line JOIN product ON product.id = cart_line.product WHERE customer = ?1 ORDER BY product.id",
        )?;
        let mut rows = lines.query([customer])?;
        let mut total = 0;
        while let Some(row) = rows.next()? {
            let quantity: i64 = row.get(5)?;
            dependencies.push(format!("product:{}", row.get::<_, i64>(0)?));
            total += row.get::<_, i64>(2)? * quantity;
            item(html, row)?;
            put!(html, "<li>of it: {quantity}</li>");
        }
        put!(html, "</ul><p>Total: {}</p></section>", money(total));
        Ok(dependencies)
    })
}

const PRODUCT: &str = "SELECT id, name, price_cents, stock, changed FROM product";

fn page(
    database: &Database,
    title: &str,
    body: impl FnOnce(&Transaction<'_>, &mut String) -> Result<Vec<String>, Failure>,
) -> Result<Page, Error> {
    let (commit, (parts, dependencies)) = database.read(|read| {
        let mut parts = String::with_capacity(8 << 10);
        let dependencies = body(read, &mut parts)?;
        Ok((parts, dependencies))
    })?;
    let html = format!(
        "<!doctype html><html lang=\"en\" data-commit=\"{commit}\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>body{{font:16px/1.5 system-ui;max-width:60em;margin:2em auto;padding:0 1em}}\
         section{{display:inline-block;vertical-align:top;min-width:18em;margin-right:2em}}</style>\
         <h1><a href=\"/\">{title}</a></h1>{parts}</html>"
    );
    Ok(Page { commit, html, dependencies })
}

fn list(read: &Transaction<'_>, html: &mut String, title: &str, choice: &str) -> Result<(), Failure> {
    put!(html, "<section><h2>{title}</h2><ul>");
    let mut products = read.prepare_cached(&format!("{PRODUCT} {choice}"))?;
    let mut rows = products.query([])?;
    while let Some(row) = rows.next()? {
        item(html, row)?;
    }
    html.push_str("</ul></section>");
    Ok(())
}

fn item(html: &mut String, row: &Row<'_>) -> rusqlite::Result<()> {
    let (id, name, cents, stock, changed): (i64, String, i64, i64, i64) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
    put!(
        html,
        "<li data-row=\"product:{id}\" data-changed=\"{changed}\"><a href=\"/product/{id}\">{}</a> {} ({stock})</li>",
        escaped(&name),
        money(cents)
    );
    Ok(())
}

fn money(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Writing to a String cannot fail.
macro_rules! put {
    ($to:expr, $($what:tt)*) => { let _ = write!($to, $($what)*); };
}
use put;
