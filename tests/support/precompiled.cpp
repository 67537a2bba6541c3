// Empty source of attn_test_headers, which only precompiles headers.
int main() { return 0; }
