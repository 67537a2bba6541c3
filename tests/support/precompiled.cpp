// What attn_test_headers is compiled from: the headers are all of it.
int main() { return 0; }
