package main

// What a person at a terminal gets, and a file does not: colours.

import (
	"io"
	"os"

	"ringside/internal/top"
)

// onTerminal says whether a person reads what is printed to out.
func onTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && top.IsTerminal(f)
}

// wantsColours says whether nobody has said that colours are not wanted.
func wantsColours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// colours says whether what is printed to out may have colours.
func colours(out io.Writer) bool { return onTerminal(out) && wantsColours() }

// paint is a text that goes to out, in the colour of the style if it may have one.
func paint(out io.Writer, style top.Style, text string) string {
	if style == top.Plain || !colours(out) {
		return text
	}
	return style.Paint(text)
}
