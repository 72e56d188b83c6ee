//! The form of every frame: a header and one message.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic, `1SID` |
//! | 2 | version, [`VERSION`], little endian |
//! | 1 | protocol, [`Frame::PROTOCOL`] |
//! | rest | the message in [postcard's wire format](https://postcard.jamesmunns.com/wire-format) |
//!
//! The places of magic and version never change, so programs of different versions refuse each
//! other. A change of a message raises the version: postcard numbers the variants of an enum and
//! orders the fields of a struct as they are declared.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

/// The version of all frames. Programs of different versions refuse each other.
pub(crate) const VERSION: u16 = 7;
/// The longest value in bytes.
pub(crate) const MAX_VALUE: usize = MAX_FRAME - 128;
/// The longest frame between a host daemon and a rank, in bytes.
pub(crate) const MAX_FRAME: usize = 64 << 10;
/// The longest name in bytes.
const MAX_NAME: usize = 64;

/// The messages of one sender in one protocol.
pub(crate) trait Frame: Serialize + DeserializeOwned {
    /// Distinguishes the messages of one sender from those of all others.
    const PROTOCOL: u8;

    /// The header and the message.
    fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, header(Self::PROTOCOL).to_vec()).expect("every message can be encoded")
    }

    /// Decodes a whole frame. Allocates at most in proportion to its length.
    fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let [b'1', b'S', b'I', b'D', low, high, protocol, message @ ..] = frame else { return Err(Malformed::Magic) };
        match u16::from_le_bytes([*low, *high]) {
            VERSION if *protocol == Self::PROTOCOL => {}
            VERSION => return Err(Malformed::Protocol(*protocol)),
            other => return Err(Malformed::Version(other)),
        }
        match postcard::take_from_bytes(message).map_err(Malformed::Message)? {
            (message, []) => Ok(message),
            (_, rest) => Err(Malformed::Long(rest.len())),
        }
    }
}

pub(crate) const fn header(protocol: u8) -> [u8; 7] {
    let [low, high] = VERSION.to_le_bytes();
    [b'1', b'S', b'I', b'D', low, high, protocol]
}

/// What is wrong with a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("not a frame of onesided")]
    Magic,
    #[error("version {0} of the protocol, this program speaks version {VERSION}")]
    Version(u16),
    #[error("a frame of another protocol, number {0}")]
    Protocol(u8),
    #[error("not a message of this protocol ({0})")]
    Message(postcard::Error),
    #[error("{0} bytes too many")]
    Long(usize),
}

/// A name: 1 to 64 characters of printable ASCII without spaces, which decoding checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "&str")]
pub(crate) struct Name(pub(crate) String);

impl TryFrom<&str> for Name {
    type Error = &'static str;

    fn try_from(name: &str) -> Result<Self, Self::Error> {
        let valid = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if valid { Ok(Self(name.to_owned())) } else { Err("not a name") }
    }
}

/// Bytes: at most [`MAX_VALUE`], which decoding checks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "&[u8]")]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl TryFrom<&[u8]> for Bytes {
    type Error = &'static str;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        if bytes.len() <= MAX_VALUE { Ok(Self(bytes.to_vec())) } else { Err("too long") }
    }
}

impl Serialize for Bytes {
    /// As one piece: the derived form would write byte after byte.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

#[cfg(test)]
pub(crate) mod tests;
