//! What may be a name.

use crate::error::{Error, ErrorCode, Result};

/// The longest name, in code points.
pub const MAX_NAME: usize = 128;

/// Refuses an empty or too long name. Everything else is a legal one.
///
/// # Errors
/// `InvalidArgument`, naming the name.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let length = name.chars().take(MAX_NAME + 1).count();
    if (1..=MAX_NAME).contains(&length) {
        return Ok(());
    }
    let problem = if length == 0 { "is empty" } else { "is longer than 128 characters" };
    let shown: String = name.chars().take(32).collect();
    Err(Error::new(
        ErrorCode::InvalidArgument,
        format!("The name of a {what} {problem}: \"{shown}\". Names have 1 to 128 characters."),
    )
    .with("argument", what))
}
