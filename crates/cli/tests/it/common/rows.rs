//! A shop whose database is behind the relay: its pages, and what a commit does to them.

use verbena_testkit::programs::wait_for;

use super::traffic::Client;

/// Pages of rows of `products`, and a hand that writes through the relay.
pub trait RowPages {
    /// Where the proxy is.
    fn address(&self) -> &str;

    /// Statements by hand, through the relay.
    fn write(&self, statements: &str);

    /// A page, and whether it was a hit.
    fn get(&self, path: &str) -> (String, bool) {
        let answer = Client::new(self.address()).ask("GET", path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        (answer.body, answer.hit)
    }

    /// Asks until it is a hit.
    fn warm(&self, path: &str) -> String {
        let mut last = String::new();
        wait_for(&format!("a hit of {path}"), || {
            let (body, is_hit) = self.get(path);
            last = body;
            is_hit
        });
        last
    }

    /// After each commit the next answer shows it, and most answers are hits.
    fn shows_each_commit(&self, rounds: usize) {
        let paths = ["/product/1", "/product/2", "/product/3", "/product/4"];
        paths.iter().for_each(|path| drop(self.warm(path)));
        let (mut hits, mut asked) = (0, 0);
        for round in 0..rounds {
            let (row, price) = (round % 4 + 1, 1000 + round);
            self.write(&format!("UPDATE products SET price = {price} WHERE id = {row}"));
            for (at, path) in paths.iter().enumerate() {
                let (body, is_hit) = self.get(path);
                asked += 1;
                hits += u32::from(is_hit);
                if at + 1 == row {
                    assert!(body.contains(&price.to_string()), "round {round}: {path} is {body}, stale");
                }
            }
        }
        println!("counted: {rounds} commits, {asked} answers, {hits} hits, 0 stale");
        assert!(hits * 2 > asked, "{hits} hits of {asked}");
    }
}
