package top

// This file converts screens for terminals and fonts that have only ASCII.

import "strings"

// signs has the ASCII character that replaces each non-ASCII character of a screen. One character
// replaces one, so columns stay aligned.
var signs = map[rune]byte{
	'─': '-', '█': '#', '▉': '#', '▊': '#', '▋': '#', '▌': '=', '▍': '=', '▎': '-', '▏': '|', '▒': '+', '░': '.', '▼': 'v',
	'●': 'o', '◇': '~', '○': '?', '△': '!', '✗': 'X', '←': '<', '→': '>', '↑': '^', '↓': 'v', '⚠': '!',
	'–': '-', '…': '~', '·': '-', 'µ': 'u', '±': '~', '’': '\'',
}

// ASCII returns a line with ASCII characters only. A non-ASCII character without a replacement in
// signs becomes a question mark.
func ASCII(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x80:
			return r
		case r >= 0x2800 && r < 0x2900: // a braille character of a chart of recent rates; the higher of its two columns counts
			return rune(" _.-^"[height(r)])
		}
		if sign, ok := signs[r]; ok {
			return rune(sign)
		}
		return '?'
	}, line)
}

// height returns the height of the braille character r in a chart of recent rates, from 0 (empty)
// to 4.
func height(r rune) (most int) {
	dots := r - 0x2800
	for _, side := range [...][4]rune{{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}} {
		n := 0
		for _, dot := range side {
			if dots&dot != 0 {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
