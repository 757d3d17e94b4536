//! What LIST and error bodies share in reading XML: text that arrives in pieces, and references.

use quick_xml::events::{BytesRef, Event};

/// Appends the text of `event` to `out`, references resolved; false when the event is no text.
///
/// Nothing is checked beyond that: stores write characters that XML forbids, raw or as references, and keys that are not UTF-8.
pub(super) fn push_text(event: &Event<'_>, out: &mut Vec<u8>) -> bool {
    match event {
        Event::Text(text) => out.extend_from_slice(text),
        Event::CData(data) => out.extend_from_slice(data),
        Event::GeneralRef(reference) => push_reference(reference, out),
        _ => return false,
    }
    true
}

fn push_reference(reference: &BytesRef<'_>, out: &mut Vec<u8>) {
    let name: &[u8] = reference;
    let character = match name {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        [b'#', b'x' | b'X', digits @ ..] => code_point(digits, 16),
        [b'#', digits @ ..] => code_point(digits, 10),
        _ => None,
    };
    match character {
        Some(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        None => {
            out.push(b'&');
            out.extend_from_slice(name);
            out.push(b';');
        }
    }
}

fn code_point(digits: &[u8], radix: u32) -> Option<char> {
    let digits = std::str::from_utf8(digits).ok()?;
    char::from_u32(u32::from_str_radix(digits, radix).ok()?)
}
