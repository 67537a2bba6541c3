#compdef attnc
# Completion of attnc for zsh. It asks attnc itself, so it knows every command and option.
#   source <(attnc completion zsh)

_attnc() {
  local line meaning files
  local -a lines plain open
  lines=("${(@f)$("${words[1]/#\~/$HOME}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in "${lines[@]}"; do
    case $line in
      '') ;;
      :files* | :folders) files=$line ;;
      *)
        meaning=${line#*$'\t'}
        line=${line%%$'\t'*}
        [[ $meaning == $line ]] && meaning=
        line=${line//:/\\:}${meaning:+:$meaning}
        if [[ $line == *= ]]; then open+=("$line"); else plain+=("$line"); fi
        ;;
    esac
  done
  (( ${#plain} )) && _describe attnc plain
  (( ${#open} )) && _describe attnc open -S ''
  [[ -n $files ]] && compset -P '*='
  case $files in
    :folders) _files -/ ;;
    :files) _files ;;
    :files*) _files -g "*(${(j:|:)${=files#:files }})(-.)" ;;
  esac
  return 0
}

# Loaded by compinit, this file is the function's body; otherwise it defines the function.
if [[ ${funcstack[1]} == _attnc ]]; then
  _attnc "$@"
else
  compdef _attnc attnc
fi
