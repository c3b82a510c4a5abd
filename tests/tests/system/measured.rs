//! What the measuring programs start by themselves does its work.

use ipc_proto::edges::artifact::{Reply, Request, Root};
use mono_tests::bench::Bed;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_artifact_worker_of_the_benchmarks_publishes() {
    let bed = Bed::new().unwrap();
    let worker = bed.serving_artifact_worker(10).await.unwrap();
    std::fs::write(bed.at("workspace/file.bin"), b"measured").unwrap();
    for number in 0..2 {
        let client = worker.run(number).await.unwrap();
        let file: OwnedFd = File::open(bed.at("workspace/file.bin")).unwrap().into();
        let request = Request::Publish {
            root: Root::Workspace,
            path: "file.bin".to_owned(),
            name: None,
            media_type: None,
        };
        let (published, _) = client.call(&request, &[file], PATIENCE).await.unwrap();
        assert!(
            matches!(published, Reply::Published { .. }),
            "{published:?}"
        );
        let (end, _) = client
            .call(&Request::Finalise, &[], PATIENCE)
            .await
            .unwrap();
        assert!(matches!(end, Reply::Finalised { .. }), "{end:?}");
    }
}
