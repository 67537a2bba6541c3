autocmd BufNewFile,BufRead *.attn setfiletype attn
