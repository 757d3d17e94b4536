//! Errors that come from around the S3 service rather than from it, in the form of S3.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::list_xml::escape_xml;

/// An error answer; `region` is what some errors tell the client to use instead.
pub(super) fn error_response(status: u16, code: &str, message: &str, region: Option<&str>) -> Response<s3s::Body> {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    for (name, text) in [("Code", Some(code)), ("Message", Some(message)), ("Region", region)] {
        if let Some(text) = text {
            xml.push_str(&format!("<{name}>"));
            escape_xml(&mut xml, text);
            xml.push_str(&format!("</{name}>"));
        }
    }
    xml.push_str("</Error>");
    let mut response = Response::new(s3s::Body::from(xml));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}
