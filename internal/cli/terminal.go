package cli

// This file contains colours, which are only written to a terminal and not to a file.

import (
	"io"
	"os"
	"strings"

	"ringside/internal/top"
)

// OnTerminal reports whether out writes to a terminal.
func OnTerminal(out io.Writer) bool {
	if s, ok := out.(*sanitizer); ok {
		out = s.to
	}
	f, ok := out.(*os.File)
	return ok && top.IsTerminal(f)
}

// WantsColours reports whether the environment allows colours: NO_COLOR is empty, and TERM is not
// "dumb".
func WantsColours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Colours reports whether text that is written to out may have colours.
func Colours(out io.Writer) bool { return OnTerminal(out) && WantsColours() }

// Paint returns text in the colour of style if out may have colours. Otherwise it returns text
// unchanged.
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
