package cli

// This file contains colours, which are only written to a terminal and not to a file.

import (
	"io"
	"os"
	"strings"

	"ringside/internal/top"
)

// Terminal returns the terminal to which out writes, for commands that draw on it. It returns nil
// if out does not write to a terminal.
func Terminal(out io.Writer) *os.File {
	if s, ok := out.(*sanitizer); ok {
		out = s.to
	}
	if f, ok := out.(*os.File); ok && top.IsTerminal(f) {
		return f
	}
	return nil
}

// OnTerminal reports whether out writes to a terminal.
func OnTerminal(out io.Writer) bool { return Terminal(out) != nil }

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
