package cli

// What a person at a terminal gets, and a file does not: colours.

import (
	"io"
	"os"

	"ringside/internal/top"
)

// OnTerminal says whether a person reads what is printed to out.
func OnTerminal(out io.Writer) bool {
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
	return style.Paint(text)
}
