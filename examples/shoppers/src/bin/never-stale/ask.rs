//! What a program says of itself at `/metrics`.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The sum of these metrics, where all are told in time.
pub async fn sum<S>(
    connecting: impl Future<Output = std::io::Result<S>>,
    names: &[&str],
    within: Duration,
) -> Option<f64>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = async {
        let mut stream = connecting.await.ok()?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: helper\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8_lossy(&answer);
        names.iter().map(|name| value(&answer, name)).sum()
    };
    tokio::time::timeout(within, asked).await.ok()?
}

fn value(answer: &str, name: &str) -> Option<f64> {
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let answer = "# TYPE open gauge\nopen_here 3\nopen 2\r\nfree{kind=\"x\"} 4\n";
        assert_eq!(value(answer, "open"), Some(2.0));
        assert_eq!(value(answer, "open_here"), Some(3.0));
        assert_eq!(value(answer, "free"), None);
    }
}
