//! Questions about what a proxy would do with a request, which the proxy beside the helper answers.

use std::pin::Pin;

use hyper::StatusCode;
use hyper::body::Incoming;
use serde_json::Value;
use verbena_protocol::api::Explain;

use crate::http_api::answer::{self, Answer, bad_request, error, read};

/// What a proxy would do with a request, as JSON, or why it cannot say.
pub type Explanation = Result<Value, String>;

/// Says what would become of a request.
pub type Explains = Box<dyn Fn(Explain) -> Pin<Box<dyn Future<Output = Explanation> + Send>> + Send + Sync>;

/// Asks it about the request that this body describes.
pub(crate) async fn answer(explains: Option<&Explains>, body: Incoming) -> Answer {
    let asked: Explain = match read(body).await {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    let Some(explains) = explains else {
        return error(
            StatusCode::SERVICE_UNAVAILABLE,
            "there is no proxy beside this helper: name the node that has one by --cluster-name",
        );
    };
    match explains(asked).await {
        Ok(explained) => answer::answer(StatusCode::OK, &explained),
        Err(problem) => bad_request(problem),
    }
}
