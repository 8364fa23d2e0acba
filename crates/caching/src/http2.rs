//! A head that came over HTTP/2, made one of HTTP/1.1, so that key, route and forwarding have one opinion about both (RFC 9113 section 8).
//!
//! What the framing layer refuses is not looked at again: connection-specific fields, capitals in names, a length that the frames do not add up to.

use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::{HeaderValue, request};

use crate::forward::Unfit;

/// Leaves one `Cookie` line, one length at most, and a host that has one spelling.
pub(crate) fn as_http1(head: &mut request::Parts) -> Result<(), Unfit> {
    let mut lengths = head.headers.get_all(CONTENT_LENGTH).iter();
    let is_number = |length: &HeaderValue| !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
    if !lengths.next().is_none_or(is_number) || lengths.next().is_some() {
        return Err(Unfit::Length);
    }
    if let Some(authority) = head.uri.authority() {
        // An authority has no user (section 8.3.1), and a `Host` that says something else is for a recipient that looks at
        // that.
        let is_other = |host: &HeaderValue| !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
        if authority.as_str().contains('@') || head.headers.get_all(HOST).iter().any(is_other) {
            return Err(Unfit::Host);
        }
    }
    let mut cookies = head.headers.get_all(COOKIE).iter();
    let Some(first) = cookies.next() else { return Ok(()) };
    let mut line = first.as_bytes().to_vec();
    let mut is_split = false;
    for crumb in cookies {
        is_split = true;
        line.extend_from_slice(b"; ");
        line.extend_from_slice(crumb.as_bytes());
    }
    if is_split {
        // Section 8.2.3: so they have to be put together for what is not HTTP/2.
        let line = HeaderValue::from_bytes(&line).map_err(|_| Unfit::Length)?;
        head.headers.insert(COOKIE, line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, Request, Version};

    use super::*;
    use crate::forward::received;

    fn receive(uri: &str, lines: &[(&'static str, &str)], version: Version) -> Result<HeaderMap, Unfit> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.parse().unwrap();
        *request.version_mut() = version;
        for (name, value) in lines {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let mut head = request.into_parts().0;
        received(&mut head).map(|()| head.headers)
    }

    fn over_http2(uri: &str, lines: &[(&'static str, &str)]) -> Result<HeaderMap, Unfit> {
        receive(uri, lines, Version::HTTP_2)
    }

    #[test]
    fn one_request_is_the_same_over_either_version() {
        let new = over_http2("https://Shop:8443/x?y", &[("cookie", "a=1"), ("cookie", "b=2; c=3"), ("accept", "*/*")]);
        let lines = [("host", "shop:8443"), ("cookie", "a=1; b=2; c=3"), ("accept", "*/*")];
        assert_eq!(new, receive("/x?y", &lines, Version::HTTP_11));
        assert_eq!(over_http2("/x", &lines).as_ref(), new.as_ref(), "Host in the place of an authority");
    }

    #[test]
    fn a_head_that_recipients_could_read_in_two_ways_is_refused() {
        let shop = "https://shop/";
        assert!(over_http2(shop, &[("host", "SHOP"), ("content-length", "5")]).is_ok());
        for (uri, lines, unfit) in [
            (shop, [("host", "shop"), ("host", "evil")], Unfit::Host),
            (shop, [("host", "evil"), ("accept", "*/*")], Unfit::Host),
            ("https://me@shop/", [("accept", "*/*"), ("te", "trailers")], Unfit::Host),
            ("/", [("accept", "*/*"), ("te", "trailers")], Unfit::Host),
            (shop, [("content-length", "5"), ("content-length", "5")], Unfit::Length),
            (shop, [("content-length", "+5"), ("accept", "*/*")], Unfit::Length),
            (shop, [("content-length", "5, 5"), ("accept", "*/*")], Unfit::Length),
            (shop, [("content-length", ""), ("accept", "*/*")], Unfit::Length),
            (shop, [("transfer-encoding", "gzip"), ("accept", "*/*")], Unfit::Coding),
        ] {
            assert_eq!(over_http2(uri, &lines), Err(unfit), "{uri} {lines:?}");
        }
    }
}
