# Completion of attnc for bash. It asks attnc itself, so it knows every command and option.
#   source <(attnc completion bash)

# Files whose names begin with $2 and end in one of the suffixes, and folders; without suffixes, all
# files. $1 is what stands before the name.
_attnc_files() {
  local before=$1 current=$2 file name suffix
  shift 2
  # readline would put a backslash before an "@".
  [[ $before == *@ ]] || compopt -o filenames 2>/dev/null
  while IFS= read -r file; do
    name=$file
    if [[ $before == *@ ]]; then
      printf -v name %q "$file"
      [ ! -d "$file" ] || name+=/
    fi
    if [ $# -eq 0 ] || [ -d "$file" ]; then
      COMPREPLY+=("$before$name")
      continue
    fi
    for suffix in "$@"; do
      [[ $file == *"$suffix" ]] && COMPREPLY+=("$before$name") && break
    done
  done < <(compgen -f -- "$current")
}

_attnc() {
  local words=() i line value kept= rest=$COMP_LINE
  # bash splits words at "=", ":" and "@" (COMP_WORDBREAKS): those without a blank between them are one.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    line=${rest#"${rest%%[![:blank:]]*}"}
    if ((i == 0)) || [[ $line != "$rest" ]]; then
      words+=("${COMP_WORDS[i]}")
    else
      words[${#words[@]} - 1]+=${COMP_WORDS[i]}
    fi
    rest=${line#"${COMP_WORDS[i]}"}
  done
  words=("${words[@]:1}")
  local current=${words[${#words[@]} - 1]}
  # What is before the last break stays on the line; readline completes an "@" with its word.
  for ((i = ${#current} - 1; i >= 0; i--)); do
    value=${current:i:1}
    if [[ $value == [=:@] && $COMP_WORDBREAKS == *"$value"* ]]; then
      kept=${current:0:i}
      [[ $value == @ ]] || kept+=$value
      break
    fi
  done
  # The name of a file comes after the last "=", or "=@".
  local path=${current##*=}
  [[ $current != *=* ]] || path=${path#@}
  local before=${current%"$path"}

  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files*)
        read -ra value <<<"${line#:files}"
        _attnc_files "$before" "$path" "${value[@]}"
        ;;
      :folders)
        compopt -o filenames 2>/dev/null
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -P "$before" -- "$path")
        ;;
      *)
        COMPREPLY+=("${line%%$'\t'*}")
        ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" complete "${words[@]}" 2>/dev/null)
  COMPREPLY=("${COMPREPLY[@]#"$kept"}")
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then compopt -o nospace 2>/dev/null; fi
  return 0
}

complete -F _attnc attnc
