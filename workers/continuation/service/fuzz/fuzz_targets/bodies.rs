//! The body of a claim or a result: what is taken keeps its bounds and has one canonical form.
#![no_main]

use continuation_record::{Payload, Time};
use continuation_service::http::body::Fields;
use continuation_service::intake::{Submission, Wanted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(fields) = Fields::parse(bytes) else {
        return;
    };
    let now = Time::from_ms(1_900_000_000_000);
    if let Ok(wanted) = Wanted::parse(&fields) {
        if wanted.in_time(now).is_ok() {
            assert!(wanted.deadline > now && wanted.deadline.since(now) <= 30 * 86_400_000);
        }
        assert_eq!(
            Time::parse(&wanted.deadline.to_string()),
            Some(wanted.deadline)
        );
    }
    if let Ok(submission) = Submission::parse(&fields) {
        let again = Payload::parse(submission.payload.text());
        assert!(again.is_ok_and(|again| again == submission.payload));
        assert_eq!(submission.hash, submission.payload.hash());
    }
});
