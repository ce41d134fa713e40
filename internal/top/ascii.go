package top

// Screens for terminals, and fonts, that have nothing but ASCII.

import "strings"

// signs are what stands for each character that a screen has beyond ASCII: one for one, so
// that columns stay columns.
var signs = map[rune]byte{
	'─': '-', '█': '#', '▉': '#', '▊': '#', '▋': '#', '▌': '=', '▍': '=', '▎': '-', '▏': '|', '▒': '+', '░': '.', '▼': 'v',
	'●': 'o', '◇': '~', '○': '?', '△': '!', '✗': 'X', '←': '<', '→': '>', '↑': '^', '↓': 'v', '⚠': '!',
	'–': '-', '…': '~', '·': '-', 'µ': 'u', '±': '~', '’': '\'',
}

// ASCII is a line of a screen in ASCII alone. What has no sign is a question mark.
func ASCII(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x80:
			return r
		case r >= 0x2800 && r < 0x2900: // the line of the past: as high as the higher of both
			return rune(" _.-^"[height(r)])
		}
		if sign, ok := signs[r]; ok {
			return rune(sign)
		}
		return '?'
	}, line)
}

// height is how high a cell of spark is, from 0, empty, to 4.
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
