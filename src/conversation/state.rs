//! The states of an endpoint.

/// The state of an endpoint, as `sys.conversation_endpoints` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Started outbound: begun, nothing sent yet.
    StartedOutbound,
    /// Started inbound: the first message is not complete.
    StartedInbound,
    /// Conversing: both sides may send.
    Conversing,
    /// Disconnected inbound: the far side has ended.
    DisconnectedInbound,
    /// Disconnected outbound: this side has ended, the far one does not know yet.
    DisconnectedOutbound,
    /// An Error has arrived.
    Error,
    /// Finished, and remembered against replays.
    Closed,
}

impl State {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::StartedOutbound,
        Self::StartedInbound,
        Self::Conversing,
        Self::DisconnectedInbound,
        Self::DisconnectedOutbound,
        Self::Error,
        Self::Closed,
    ];

    /// The two letters.
    pub fn letters(self) -> &'static str {
        match self {
            Self::StartedOutbound => "SO",
            Self::StartedInbound => "SI",
            Self::Conversing => "CO",
            Self::DisconnectedInbound => "DI",
            Self::DisconnectedOutbound => "DO",
            Self::Error => "ER",
            Self::Closed => "CD",
        }
    }

    /// What it means, for error texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::StartedOutbound => "begun, nothing sent yet",
            Self::StartedInbound => "the first message is not complete",
            Self::Conversing => "both sides may send",
            Self::DisconnectedInbound => "the far side has ended it",
            Self::DisconnectedOutbound => "this side has ended it",
            Self::Error => "an Error has arrived",
            Self::Closed => "finished",
        }
    }

    pub(crate) fn index(self) -> usize {
        Self::ALL.iter().position(|state| *state == self).unwrap_or_default()
    }

    /// Whether SEND is allowed.
    pub fn may_send(self) -> bool {
        matches!(self, Self::StartedOutbound | Self::Conversing)
    }

    /// Whether this side has ended: it has no rows.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::DisconnectedOutbound | Self::Closed)
    }

    /// Whether a timer may be begun.
    pub fn may_have_timer(self) -> bool {
        self.may_end() && self != Self::StartedInbound
    }

    /// Whether END is allowed.
    pub fn may_end(self) -> bool {
        matches!(
            self,
            Self::StartedOutbound | Self::StartedInbound | Self::Conversing | Self::DisconnectedInbound | Self::Error
        )
    }
}
