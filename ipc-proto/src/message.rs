//! What makes an enum a message of an edge.

use crate::codec::{self, CodecError};
use serde::{Serialize, de::DeserializeOwned};

/// One direction of an edge: an enum whose variants are message kinds.
pub trait Message: Serialize + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static {
    /// Most descriptors that any kind of this direction carries; sizes the receive buffer.
    const MAX_DESCRIPTORS: u8;

    /// The kind of this value, as in [`crate::table`].
    fn kind(&self) -> u16;

    /// Encodes the body.
    ///
    /// # Errors
    /// When the value doesn't fit a packet.
    fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// When the bytes have another shape or some are left over.
    fn decode(body: &[u8]) -> Result<Self, CodecError> {
        codec::decode(body)
    }
}

/// A request and reply relation between two roles.
pub trait Edge: std::fmt::Debug + Send + Sync + 'static {
    /// What the requester says.
    type Request: Message;
    /// What the owner says.
    type Reply: Message;
    /// Name in errors and logs.
    const NAME: &'static str;
    /// True when `reply` ends its call.
    fn is_final(reply: &Self::Reply) -> bool;
}

/// Defines one direction of an edge: the enum, the kind of each variant and the most descriptors.
#[macro_export]
macro_rules! messages {
    (
        $(#[$meta:meta])*
        pub enum $name:ident, descriptors $max:literal {
            $( $(#[$vmeta:meta])* $variant:ident $( { $( $(#[$fmeta:meta])* $field:ident : $ty:ty ),* $(,)? } )? = $kind:literal ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $( $(#[$vmeta])* $variant $( { $( $(#[$fmeta])* $field : $ty ),* } )? ),*
        }

        impl $crate::message::Message for $name {
            const MAX_DESCRIPTORS: u8 = $max;

            fn kind(&self) -> u16 {
                match self {
                    $( Self::$variant { .. } => $kind ),*
                }
            }
        }

        impl $name {
            /// Kind and name of every variant, for the table's completeness test.
            pub const KINDS: &'static [(u16, &'static str)] = &[ $( ($kind, stringify!($variant)) ),* ];
        }
    };
}
