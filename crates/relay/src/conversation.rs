//! One connection as a machine: bytes of both sides and answers of the bracket come in; bytes and actions come out.

/// One connection between a client and a server, without input or output.
///
/// The driver feeds what it reads, writes what [`to_client`](Self::to_client) and [`to_server`](Self::to_server) hold,
/// and carries out each [`Action`]. It reads a side only while the machine says so, so that memory stays bounded.
pub trait Conversation: Send {
    /// What a held command writes.
    type Write: Send + 'static;

    /// Bytes from the client.
    fn client(&mut self, bytes: &[u8]);
    /// Bytes from the server.
    fn server(&mut self, bytes: &[u8]);
    /// The client sends no more.
    fn client_closed(&mut self);
    /// The server sends no more.
    fn server_closed(&mut self);
    /// There is no server, and never was, or TLS with it failed: the client is told so as its protocol has it, and then the connection closes.
    fn unreachable(&mut self, problem: &str);
    /// The TLS that [`Action::Encrypt`] asked for is there. What comes from now on is what it carries.
    fn encrypted(&mut self, end: End);
    /// The bracket that [`Action::Begin`] asked for is acknowledged by every home, or is not.
    fn begun(&mut self, result: Result<(), Rejection>);
    /// The bracket that [`Action::End`] ended is confirmed, or is not.
    fn ended(&mut self, is_confirmed: bool);
    /// What to do next besides passing bytes.
    fn next_action(&mut self) -> Option<Action<Self::Write>>;
    /// What the client is to be sent. The driver takes it from the front.
    fn to_client(&mut self) -> &mut Vec<u8>;
    /// What the server is to be sent.
    fn to_server(&mut self) -> &mut Vec<u8>;
    /// More bytes of the client are welcome.
    fn reads_client(&self) -> bool;
    /// No command is unanswered and no transaction open.
    fn is_idle(&self) -> bool;
}

/// What a conversation asks of its driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<W> {
    /// Begin a bracket, and say [`Conversation::begun`].
    Begin(W),
    /// End it, and say [`Conversation::ended`]. The bytes of the answer stay back until then.
    End(Outcome),
    /// Send this end what it is still to be sent, begin TLS with it, and say [`Conversation::encrypted`], or that it
    /// [closed](Conversation::client_closed) or is [unreachable](Conversation::unreachable).
    Encrypt {
        /// Which.
        end: End,
        /// What has come of its TLS already.
        begun: Vec<u8>,
    },
    /// Send what both sides are still to be sent, then close both. No later action comes but `End`, where a `Begin`
    /// is still unanswered or unended.
    Close(Option<Error>),
}

/// An end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The application.
    Client,
    /// The database.
    Server,
}

/// Where connections are encrypted. The relay is an end of TLS on both sides, because it reads what passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Encryption {
    /// Clients that ask for TLS get it.
    pub clients: bool,
    /// Nothing is sent to the server in clear but the request for TLS.
    pub server: bool,
    /// The server is reached by a socket of this machine, on which nobody else listens.
    pub server_is_near: bool,
}

impl Encryption {
    /// What a client sends goes to the server in clear, over a network, although it sends it by TLS.
    pub(crate) fn bares(self, has_encrypted_client: bool) -> bool {
        has_encrypted_client && !self.server && !self.server_is_near
    }
}

/// Why a login ends in which a client would send its password by TLS, and the relay would send it on in clear.
pub(crate) const BARE_PASSWORD: &str = "verbena: this login sends the password itself, and there is no TLS between the relay and the database: ask for TLS in database.to";

/// What is known of a bracketed command when its bracket ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The database answered, with success or an error.
    Answered,
    /// It was forwarded and not answered: it may take effect at any later moment (P6).
    Unknown,
    /// It was never forwarded.
    Unsent,
}

/// Why a bracket was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The homes did not all acknowledge: the client may try again.
    #[error("not every home acknowledged the update")]
    Retry,
    /// The relay holds no lease: it lets reads through and no writes (Q19).
    #[error("the relay has no lease")]
    ReadOnly,
}

/// Why the relay closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client's bytes are not of the protocol.
    #[error("malformed bytes from the client: {0}")]
    Client(&'static str),
    /// The server's bytes are not of the protocol.
    #[error("malformed bytes from the server: {0}")]
    Server(&'static str),
    /// The end of a bracket was not confirmed, so the application gets no answer (P7).
    #[error("the end of the update was not confirmed")]
    Unconfirmed,
    /// The server refused to roll back a transaction whose bracket was not begun.
    #[error("the server refused to roll back a transaction that must not commit")]
    Rollback,
}

/// How much of one connection the relay keeps in memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A longer command is judged by its beginning (`Command::is_whole`). At most 16 MiB less two bytes.
    pub command_bytes: usize,
    /// A longer packet of the server is passed on in pieces (`Row::is_whole`).
    pub answer_bytes: usize,
    /// The answer of a held command stays back up to this length; of a longer one the last packet alone does.
    pub held_bytes: usize,
    /// The commands that may be unanswered at one time.
    pub pipelined: usize,
    /// No further command is taken while the server has more than this to take.
    pub buffer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            command_bytes: 0xFF_FFFE,
            answer_bytes: 64 << 10,
            held_bytes: 64 << 10,
            pipelined: 1024,
            buffer_bytes: 64 << 10,
        }
    }
}
