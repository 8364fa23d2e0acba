//! What experiments with web pages are made of, each in a process of its own: an application, a bare loop to compare proxies with, and a
//! client that keeps to a rate.

mod bare;
mod paced;
mod pages;
mod threads;

/// Plays the part that `arguments` name; `None` if there is no such part.
pub(crate) fn play(arguments: &[String]) -> Option<Result<(), String>> {
    let (role, rest) = arguments.split_first()?;
    match role.as_str() {
        bare::ROLE => Some(bare::serve(rest)),
        pages::ROLE => Some(pages::serve(rest)),
        paced::ROLE => Some(paced::ask(rest)),
        _ => None,
    }
}
