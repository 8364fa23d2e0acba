//! The configuration: one TOML file whose sections belong to the crates they set, each key also a flag.
//!
//! The file is read into a [`tree`] whose values know where they were written; flags are laid over it; each section's struct
//! is read out of it by serde ([`reading`]). A value that is refused is reported and taken out, and the section read again
//! ([`section`]), so that one run finds every mistake, with the struct itself as the only schema.

mod document;
mod flags;
mod load;
mod mistake;
mod reading;
mod reference;
mod section;
mod show;
mod tree;

pub use document::Document;
pub use flags::{Flags, listed};
pub use load::{
    Config, DEFAULT_FILE, Described, Error, Flag, LARGEST_FILE, Loaded, Visit, Whose, examine, flag_name, load,
    sections, try_bytes, try_to_show,
};
pub use mistake::{Located, Mistake, Place, Source, closest};
pub use reference::reference;
pub use show::{Effective, effective, print};
