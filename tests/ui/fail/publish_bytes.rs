use outbox::subscriber;

#[subscriber("images", publish = "thumbnails")]
async fn shrink(image: &[u8]) -> Result<Vec<u8>, String> {
    Ok(image.to_vec())
}

fn main() {}
