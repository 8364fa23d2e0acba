//! Statements in the style of WordPress, MediaWiki and Django: nearly all are understood, and a kept shape says the same
//! as a fresh look.

use verbena_statements::{Analyser, Column, ColumnType, Dialect, Names, Product, Schema, Table};

const STATEMENTS: &[u8] = include_bytes!("../../testdata/applications.txt");

struct Application {
    product: Product,
    schema: Schema,
    statements: Vec<&'static [u8]>,
}

fn database(product: Product) -> &'static [u8] {
    match product {
        Product::Sqlite => b"main",
        Product::PostgreSql => b"public",
        Product::MySql | Product::MariaDb => b"site",
    }
}

fn table(columns: &str) -> Table {
    let mut table = Table::default();
    for column in columns.split(' ') {
        let (name, kind) = column.split_once(':').expect("a column has a type");
        let name = name.as_bytes();
        let column = match &kind[..1] {
            "i" => Column::new(name, ColumnType::Integer),
            "b" => Column::new(name, ColumnType::Bytes),
            _ => Column::new(name, ColumnType::Other),
        };
        let key = kind.ends_with('*');
        table.columns.push(Column { nullable: !key, ..column });
        if key {
            table.primary.push(name.to_vec());
        } else if kind.ends_with('!') {
            table.unique.push(vec![name.to_vec()]);
        }
    }
    table
}

fn applications() -> Vec<Application> {
    let mut applications: Vec<Application> = Vec::new();
    for line in STATEMENTS.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#")) {
        let text = String::from_utf8_lossy(line);
        if let Some(head) = text.strip_prefix("@ ") {
            let product = match head.split(' ').next() {
                Some("mariadb") => Product::MariaDb,
                Some("postgresql") => Product::PostgreSql,
                _ => Product::Sqlite,
            };
            let schema = Schema { search: vec![database(product).to_vec()], ..Schema::default() };
            applications.push(Application { product, schema, statements: Vec::new() });
            continue;
        }
        let application = applications.last_mut().expect("a statement belongs to an application");
        match text.strip_prefix("table ").and_then(|rest| rest.split_once(' ')) {
            Some((name, columns)) => {
                let name = Schema::name(database(application.product), name.as_bytes());
                application.schema.tables.insert(name, table(columns));
            }
            None => application.statements.push(line),
        }
    }
    applications
}

#[test]
fn nearly_all_statements_of_applications_are_understood() {
    let (mut count, mut everything, mut by_table) = (0, Vec::new(), 0);
    for application in applications() {
        let dialect = Dialect::new(application.product);
        let mut analyser = Analyser::new(application.product, application.schema);
        for statement in application.statements {
            let analysis = analyser.analyse(&dialect, statement, &[]);
            count += 1;
            if analysis.reads.is_everything() || analysis.touches == Names::Everything {
                everything.push(format!("{}\n    {:?}", String::from_utf8_lossy(statement), analysis.reasons));
            }
            by_table += u32::from(analysis.reads.keys().is_empty() && !analysis.reads.start().is_empty());
        }
    }
    println!("{count} statements, {} everything, {by_table} reads without keys", everything.len());
    assert!(count >= 150, "only {count} statements");
    assert!(everything.len() * 100 <= count, "{} of {count}:\n{}", everything.len(), everything.join("\n"));
}

#[test]
fn a_kept_shape_says_the_same_as_a_fresh_look() {
    for application in applications() {
        let dialect = Dialect::new(application.product);
        let mut kept = Analyser::new(application.product, application.schema.clone());
        let mut few = Analyser::new(application.product, application.schema.clone()).keeping(3);
        let mut fresh = Analyser::new(application.product, application.schema).keeping(0);
        for _ in 0..3 {
            for statement in &application.statements {
                let expected = fresh.analyse(&dialect, statement, &[]);
                let text = String::from_utf8_lossy(statement);
                assert_eq!(kept.analyse(&dialect, statement, &[]), expected, "{text}");
                assert_eq!(few.analyse(&dialect, statement, &[]), expected, "{text}");
                assert!(few.shapes() <= 3 && fresh.shapes() == 0);
            }
        }
        assert!(kept.shapes() > 3 && kept.shapes() < application.statements.len());
    }
}
