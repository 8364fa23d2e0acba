//! Answers with what may differ taken out: cas values, times, statistics.

/// The answer without what may differ, and the cas values that it shows, in order.
pub fn normal(answer: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let (mut out, mut cas, mut rest) = (vec![], vec![], answer);
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 2..];
        let words: Vec<&str> = line.split(' ').collect();
        let mut body = 0;
        let shown = match words[0] {
            "VALUE" => {
                body = words[3].parse::<usize>().unwrap() + 2;
                cas.extend(words.get(4).map(|cas| cas.parse::<u64>().unwrap()));
                words[..4].join(" ") + if words.len() > 4 { " #" } else { "" }
            }
            "HD" | "VA" | "EN" | "NF" | "NS" | "EX" => {
                let mut shown = vec![words[0].to_owned()];
                for (at, word) in words.iter().enumerate().skip(1) {
                    shown.push(match word.as_bytes().first() {
                        _ if at == 1 && words[0] == "VA" => {
                            body = word.parse::<usize>().unwrap() + 2;
                            (*word).to_owned()
                        }
                        Some(b'c') => {
                            cas.push(word[1..].parse().unwrap());
                            "c#".to_owned()
                        }
                        Some(b't') if *word != "t-1" => "t#".to_owned(),
                        Some(b'l') => "l#".to_owned(),
                        _ => (*word).to_owned(),
                    });
                }
                shown.join(" ")
            }
            "ME" => {
                cas.push(words[4].strip_prefix("cas=").unwrap().parse().unwrap());
                format!("ME {} {}", words[1], words[5])
            }
            "STAT" => continue,
            "VERSION" => "VERSION".to_owned(),
            _ => line.clone(),
        };
        out.extend_from_slice(shown.as_bytes());
        out.extend_from_slice(b"\r\n");
        let body = body.min(rest.len());
        out.extend_from_slice(&rest[..body]);
        rest = &rest[body..];
    }
    out.extend_from_slice(rest);
    (out, cas)
}
