# Completion of attnc for fish. It asks attnc itself, so it knows every command and option.
#   attnc completion fish | source

function __attnc_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l kept (string replace -r '[^=]*$' '' -- $current)
    for line in (command $words[1] complete $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case ':folders'
                __fish_complete_directories (string replace -r '^.*=' '' -- $current)
            case ':files*'
                set -l suffixes (string split -n ' ' -- (string replace ':files' '' -- $line))
                for file in (__fish_complete_path (string replace -r '^.*=' '' -- $current))
                    set -l name (string split -f 1 \t -- $file)
                    if test (count $suffixes) -eq 0; or string match -q '*/' -- $name
                        echo $kept$file
                        continue
                    end
                    for suffix in $suffixes
                        if string match -q "*$suffix" -- $name
                            echo $kept$file
                            break
                        end
                    end
                end
            case '*'
                echo $line
        end
    end
end

complete -c attnc -f -a '(__attnc_complete)'
