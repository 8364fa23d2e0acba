//! How a response names what it depends on: the spelling of our own field, for those who write it and those who read it.
//!
//! ```text
//!  Verbena-Dependencies: "product:7", "category:3"
//! ```
//!
//! A structured field (RFC 9651): a list of strings. An empty value is a list of nothing, which readers take for everything.

/// The field's name, in lower case.
pub const DEPENDENCY_FIELD: &str = "verbena-dependencies";
/// Most names that a page or an update has; more are taken for everything.
pub const MAX_DEPENDENCIES: usize = 256;
/// Longest name, in bytes.
pub const MAX_DEPENDENCY_NAME_BYTES: usize = 1024;
/// Longest value of a field that names dependencies, its lines together, in bytes.
pub const MAX_DEPENDENCY_FIELD_BYTES: usize = 16 * 1024;

/// The value of the field that names these. `None` if it cannot: there are none or too many, one is empty or too long or has
/// a character that is not printable ASCII, or the value gets too long.
pub fn dependency_field<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut value = String::new();
    for (nth, name) in names.into_iter().enumerate() {
        let printable = name.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
        if nth == MAX_DEPENDENCIES || name.is_empty() || name.len() > MAX_DEPENDENCY_NAME_BYTES || !printable {
            return None;
        }
        value.push_str(if nth == 0 { "\"" } else { ", \"" });
        for character in name.chars() {
            if matches!(character, '"' | '\\') {
                value.push('\\');
            }
            value.push(character);
        }
        value.push('"');
        if value.len() > MAX_DEPENDENCY_FIELD_BYTES {
            return None;
        }
    }
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_strings() {
        assert_eq!(dependency_field(["product:7", "a b"]).as_deref(), Some(r#""product:7", "a b""#));
        assert_eq!(dependency_field([r#"say "\""#]).as_deref(), Some(r#""say \"\\\"""#));
    }

    #[test]
    fn what_cannot_be_written_is_not() {
        let long = "x".repeat(MAX_DEPENDENCY_NAME_BYTES + 1);
        for name in ["", "caf\u{e9}", "a\nb", "\u{7f}", &long] {
            assert_eq!(dependency_field(["a", name]), None, "{name}");
        }
        assert_eq!(dependency_field([]), None);
        assert!(dependency_field(std::iter::repeat_n("a", MAX_DEPENDENCIES)).is_some());
        assert_eq!(dependency_field(std::iter::repeat_n("a", MAX_DEPENDENCIES + 1)), None);
        let largest = &long[..MAX_DEPENDENCY_NAME_BYTES];
        assert!(dependency_field(std::iter::repeat_n(largest, 15)).is_some());
        assert_eq!(dependency_field(std::iter::repeat_n(largest, 16)), None, "16 KiB and the quotes");
    }
}
