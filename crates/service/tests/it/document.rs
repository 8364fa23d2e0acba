//! docs/internals/SERVICE.md shows the code that these tests run.

const DOCUMENT: &str = include_str!("../../../../docs/internals/SERVICE.md");
const CODE: &str = include_str!("sequence.rs");

#[test]
fn every_block_of_the_document_is_the_code_that_is_tested() {
    let blocks: Vec<&str> = DOCUMENT.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5, "{} blocks", blocks.len());
    let mut at = 0;
    for block in blocks {
        let found = CODE[at..].find(block);
        at += found.unwrap_or_else(|| panic!("this is not in sequence.rs behind the block before it:\n{block}"));
        at += block.len();
    }
    assert!(CODE[at..].trim().is_empty(), "the document leaves out:\n{}", &CODE[at..]);
}
