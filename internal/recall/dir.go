package recall

// Dir is the directory of the index, below the data directory.
const Dir = indexName
