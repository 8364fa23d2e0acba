//! A store that clients write to while they hold a lock: each update must build on the one before.

use verbena_lock::Token;

/// One value a lock. An update says which value it was made from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Store {
    value: u64,
    token: Token,
}

#[derive(Clone, Copy, Debug)]
pub struct Update {
    pub token: Token,
    pub read: u64,
    pub writes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    Stored,
    /// Its token was smaller than one that was seen.
    Refused,
    /// It was stored over an update that it knew nothing of.
    Overwrote,
}

impl Store {
    /// A client that holds the lock reads it, and the store has seen its token from then on.
    pub fn read(&mut self, token: Token) -> u64 {
        self.token = self.token.max(token);
        self.value
    }

    pub fn write(&mut self, update: Update, is_guarded: bool) -> Became {
        if is_guarded && update.token < self.token {
            return Became::Refused;
        }
        let became = if update.read == self.value { Became::Stored } else { Became::Overwrote };
        (self.value, self.token) = (update.writes, self.token.max(update.token));
        became
    }
}
