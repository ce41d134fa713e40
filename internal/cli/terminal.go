package cli

// What a person at a terminal gets, and a file does not: colours.

import (
	"io"
	"os"
	"strings"

	"ringside/internal/top"
)

// OnTerminal says whether a person reads what is printed to out.
func OnTerminal(out io.Writer) bool {
	if s, ok := out.(*sanitizer); ok {
		out = s.to
	}
	f, ok := out.(*os.File)
	return ok && top.IsTerminal(f)
}

// WantsColours says whether nobody has said that colours are not wanted.
func WantsColours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Colours says whether what is printed to out may have colours.
func Colours(out io.Writer) bool { return OnTerminal(out) && WantsColours() }

// Paint is a text that goes to out, in the colour of the style if it may have one.
func Paint(out io.Writer, style top.Style, text string) string {
	if style == top.Plain || !Colours(out) {
		return text
	}
	if _, ok := out.(*sanitizer); ok {
		begin, end, _ := strings.Cut(style.Paint("\x00"), "\x00")
		mark := func(code string) string { return strings.ReplaceAll(code, "\x1b", escapeMark) }
		return mark(begin) + text + mark(end)
	}
	return style.Paint(text)
}
