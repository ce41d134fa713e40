// Package seeds contains the schemes of the articles as printed, for comparison
// with those of package recipes. They are not for use: the package contains only tests.
//
// Each scheme has a number such as S-27, which docs/recipes.md uses too. It is a
// translation to Go: the same commands in the same order, with the article's
// mistakes. Where an article loops for ever (while True), the loop here ends after
// Endless rounds with ErrEndless, so that a test can show it. A function replaces
// the clock of the articles.
//
// There are three articles: [1] the paper on caching of HighLoad++ 2008, [2] on
// data structures in memcached, [3] on a distributed counter.
//
//	go test ./recipes/... -run Seeds -v      # prints the table
//	go generate ./recipes/examples/seeds     # writes it to docs/recipes.md
package seeds

//go:generate go test . -count=1 -run ^TestSeeds$ -args -page ../../../docs/recipes.md
