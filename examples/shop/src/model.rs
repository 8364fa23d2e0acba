//! The changes that a shop knows, and what each of them touches.

use rusqlite::{OptionalExtension, Transaction};

use crate::database::{Database, Error, Failure};

/// One change of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A product's price is now this.
    Price {
        /// Which product.
        product: i64,
        /// Its new price.
        cents: i64,
    },
    /// So many more are in stock.
    Delivery {
        /// Of which product.
        product: i64,
        /// How many came.
        pieces: i64,
    },
    /// A new product: every list that it belongs to changes.
    Product {
        /// In which category.
        category: i64,
        /// What it is called.
        name: String,
        /// What it costs.
        cents: i64,
    },
    /// A customer puts something into the cart.
    IntoCart {
        /// Who.
        customer: i64,
        /// What.
        product: i64,
        /// How many.
        quantity: i64,
    },
    /// A customer orders what is in the cart; stock goes down.
    Order {
        /// Who.
        customer: i64,
    },
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The number of its commit.
    pub commit: i64,
    /// The product or customer that it was about: the new product's number for [`Change::Product`].
    pub id: i64,
}

/// What a change of a product touches, by name: what a page depends on that shows it.
pub fn product(product: i64) -> [String; 2] {
    [format!("product:{product}"), "catalogue".into()]
}

/// What a new product in a category touches: what would show it is changed by it.
pub fn category(category: i64) -> [String; 2] {
    [format!("category:{category}"), "catalogue".into()]
}

/// What a change of a cart touches.
pub fn cart(customer: i64) -> [String; 1] {
    [format!("cart:{customer}")]
}

impl Change {
    /// Makes the change, in one transaction.
    pub fn apply(&self, database: &Database) -> Result<Committed, Error> {
        let (commit, id) = database.write(|transaction, commit| self.within(transaction, commit))?;
        Ok(Committed { commit, id })
    }

    /// Makes the change if what it touches is what was announced, or else [`Error::NotAsAnnounced`].
    pub fn apply_as_announced(&self, database: &Database, announced: &[String]) -> Result<Committed, Error> {
        let (commit, id) = database.write(|transaction, commit| match self.touched(transaction)? {
            touched if touched == announced => self.within(transaction, commit),
            _ => Err(Error::NotAsAnnounced.into()),
        })?;
        Ok(Committed { commit, id })
    }

    /// The data that the change touches, by name: what a page depends on that shows it, or would show it. An order touches what is
    /// in the cart, which may be something else a moment later.
    pub fn touches(&self, database: &Database) -> Result<Vec<String>, Error> {
        Ok(database.read(|transaction| self.touched(transaction))?.1)
    }

    fn touched(&self, transaction: &Transaction<'_>) -> Result<Vec<String>, Failure> {
        Ok(match self {
            Change::Price { product, .. } | Change::Delivery { product, .. } => self::product(*product).into(),
            Change::Product { category, .. } => self::category(*category).into(),
            Change::IntoCart { customer, .. } => cart(*customer).into(),
            Change::Order { customer } => {
                let sql = "SELECT product FROM cart_line WHERE customer = ?1 ORDER BY product";
                let mut lines = transaction.prepare_cached(sql)?;
                let products = lines.query_map([customer], |row| Ok(format!("product:{}", row.get::<_, i64>(0)?)))?;
                let others = [format!("cart:{customer}"), "catalogue".into()].into_iter().map(Ok);
                products.chain(others).collect::<Result<_, _>>()?
            }
        })
    }

    fn within(&self, transaction: &Transaction<'_>, commit: i64) -> Result<i64, Failure> {
        match self {
            Change::Price { product, cents } => {
                within_bounds("cents", *cents, 0, DEAREST)?;
                let sql = "UPDATE product SET price_cents = ?2, changed = ?3 WHERE id = ?1";
                found(transaction.execute(sql, (product, cents, commit))?, "product", *product)
            }
            Change::Delivery { product, pieces } => {
                let sql = "UPDATE product SET stock = stock + ?2, changed = ?3 WHERE id = ?1 RETURNING stock";
                within_bounds("pieces", *pieces, 1, FULLEST)?;
                let stock = transaction.query_row(sql, (product, pieces, commit), |row| row.get(0)).optional()?;
                within_bounds("pieces in stock", stock.unwrap_or(0), 0, FULLEST)?;
                found(stock.iter().len(), "product", *product)
            }
            Change::Product { category, name, cents } => {
                within_bounds("cents", *cents, 0, DEAREST)?;
                within_bounds("letters in a name", name.chars().count() as i64, 1, LONGEST_NAME)?;
                let sql = "UPDATE category SET changed = ?2 WHERE id = ?1";
                found(transaction.execute(sql, (category, commit))?, "category", *category)?;
                transaction.execute(
                    "INSERT INTO product (category, name, text, price_cents, stock, changed) VALUES (?1, ?2, ?3, ?4, 10, ?5)",
                    (category, name, format!("{name}, new in the shop. "), cents, commit),
                )?;
                Ok(transaction.last_insert_rowid())
            }
            Change::IntoCart { customer, product, quantity } => {
                within_bounds("pieces", *quantity, 1, 100)?;
                let sql = "SELECT count(*) FROM product WHERE id = ?1";
                let known: i64 = transaction.query_row(sql, [product], |row| row.get(0))?;
                found(usize::from(known > 0), "product", *product)?;
                transaction.execute(
                    "INSERT INTO cart_line VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET quantity = min(100, quantity + excluded.quantity)",
                    (customer, product, quantity),
                )?;
                cart_changed(transaction, commit, *customer)
            }
            Change::Order { customer } => order(transaction, commit, *customer),
        }
    }
}

/// The highest price, in cents, and the most pieces of a product: the sums on the front page stay far from overflowing.
const DEAREST: i64 = 100_000_000;
const FULLEST: i64 = 1_000_000;
/// Letters in a product's name.
const LONGEST_NAME: i64 = 100;

fn order(transaction: &Transaction<'_>, commit: i64, customer: i64) -> Result<i64, Failure> {
    let mut lines = transaction.prepare_cached(
        "SELECT product.id, quantity, stock, price_cents FROM cart_line
         JOIN product ON product.id = cart_line.product WHERE customer = ?1",
    )?;
    let lines: Vec<(i64, i64, i64, i64)> = lines
        .query_map([customer], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<Result<_, _>>()?;
    if lines.is_empty() {
        return Err(Error::Refused(format!("the cart of customer {customer} is empty")).into());
    }
    for (product, quantity, stock, cents) in lines {
        if quantity > stock {
            return Err(
                Error::Refused(format!("{quantity} of product {product} ordered, and there are {stock}")).into()
            );
        }
        transaction.execute(
            "UPDATE product SET stock = stock - ?2, sold = sold + ?2, changed = ?3 WHERE id = ?1",
            (product, quantity, commit),
        )?;
        transaction.execute(
            "INSERT INTO sale (customer, product, quantity, price_cents) VALUES (?1, ?2, ?3, ?4)",
            (customer, product, quantity, cents),
        )?;
    }
    transaction.execute("DELETE FROM cart_line WHERE customer = ?1", [customer])?;
    cart_changed(transaction, commit, customer)
}

fn cart_changed(transaction: &Transaction<'_>, commit: i64, customer: i64) -> Result<i64, Failure> {
    let sql = "INSERT INTO cart VALUES (?1, ?2) ON CONFLICT DO UPDATE SET changed = excluded.changed";
    transaction.execute(sql, (customer, commit))?;
    Ok(customer)
}

fn found(rows: usize, what: &'static str, id: i64) -> Result<i64, Failure> {
    if rows == 0 { Err(Error::Missing { what, id }.into()) } else { Ok(id) }
}

fn within_bounds(what: &str, number: i64, least: i64, most: i64) -> Result<(), Failure> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(Error::Refused(format!("{number} {what}: from {least} to {most} are possible")).into())
}
