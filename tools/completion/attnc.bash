# Completion of attnc for bash. It asks attnc itself, so it knows every command and option.
#   source <(attnc completion bash)

# Files whose names end in one of the suffixes, and folders; without suffixes, all files.
_attnc_files() {
  local current=$1 file suffix
  shift
  compopt -o filenames 2>/dev/null
  while IFS= read -r file; do
    if [ $# -eq 0 ] || [ -d "$file" ]; then
      COMPREPLY+=("$file")
      continue
    fi
    for suffix in "$@"; do
      [[ $file == *"$suffix" ]] && COMPREPLY+=("$file") && break
    done
  done < <(compgen -f -- "$current")
}

_attnc() {
  local words=() i line value kept=
  # bash splits words at "=": puts them together again, as they were typed.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if ((i > 1)) && [[ ${COMP_WORDS[i]} == = || ${COMP_WORDS[i - 1]} == = ]]; then
      words[${#words[@]} - 1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  local current=${words[${#words[@]} - 1]}
  # What is before the last "=" stays on the line.
  if [[ $COMP_WORDBREAKS == *=* && $current == *=* ]]; then kept=${current%"${current##*=}"}; fi

  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files*)
        read -ra value <<<"${line#:files}"
        _attnc_files "${current#"${current%"${current##*=}"}"}" "${value[@]}"
        ;;
      :folders)
        compopt -o filenames 2>/dev/null
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "${current##*=}")
        ;;
      *)
        line=${line%%$'\t'*}
        COMPREPLY+=("${line#"$kept"}")
        ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" complete "${words[@]}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  return 0
}

complete -F _attnc attnc
