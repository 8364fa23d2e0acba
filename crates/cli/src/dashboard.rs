//! The dashboard: the page that a node shows to a browser. Its files are in `dashboard/` and in the program: it works without
//! the internet, needs no build of its own, and is as old as the program. What it shows it reads from `GET /overview`.

use verbena_node::File;

/// The page's files, for [`verbena_node::Helper::show`].
pub const FILES: &[File] = &[
    File { path: "/", media_type: "text/html; charset=utf-8", bytes: include_bytes!("dashboard/index.html") },
    File {
        path: "/dashboard.css",
        media_type: "text/css; charset=utf-8",
        bytes: include_bytes!("dashboard/dashboard.css"),
    },
    script("/dashboard.js", include_bytes!("dashboard/dashboard.js")),
    script("/chart.js", include_bytes!("dashboard/chart.js")),
    script("/interval.js", include_bytes!("dashboard/interval.js")),
    script("/words.js", include_bytes!("dashboard/words.js")),
    File { path: "/icon.svg", media_type: "image/svg+xml", bytes: include_bytes!("dashboard/icon.svg") },
];

const fn script(path: &'static str, bytes: &'static [u8]) -> File {
    File { path, media_type: "text/javascript; charset=utf-8", bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &File) -> &'static str {
        std::str::from_utf8(file.bytes).expect("all of them are text")
    }

    /// What a file asks for: the values of `src` and `href`, and the modules that a script imports.
    fn asked_for(text: &str) -> Vec<&str> {
        let after = |start: &'static str| text.match_indices(start).map(move |(at, _)| &text[at + start.len()..]);
        let starts = ["src=\"", "href=\"", "from \"./", "fetch(\""].into_iter().flat_map(after);
        starts.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let mut asked = 0;
        for file in FILES {
            for name in asked_for(text(file)) {
                asked += 1;
                let path = format!("/{name}");
                let known = FILES.iter().any(|file| file.path == path)
                    || ["/overview", "/metrics", "/status"].contains(&&*path);
                assert!(known, "{} asks for {name:?}, which is not there", file.path);
            }
            let elsewhere = text(file).replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("//www") && !elsewhere.contains("http"), "{} names another place", file.path);
        }
        assert!(asked >= 8, "only {asked} files are asked for");
    }

    #[test]
    fn nothing_in_the_page_is_inline() {
        let page = text(&FILES[0]);
        assert!(page.starts_with("<!DOCTYPE html>"));
        for inline in ["<style", " style=", " onload=", " onclick=", "javascript:", "<script>"] {
            assert!(!page.contains(inline), "{inline}");
        }
        assert_eq!(page.matches("<script").count(), page.matches("<script type=\"module\" src=").count());
    }
}
