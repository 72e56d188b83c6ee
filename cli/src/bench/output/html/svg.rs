//! SVG and HTML as text.

use std::fmt::Display;

/// Escapes markup.
pub(crate) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}

/// A coordinate, rounded to a tenth.
fn coordinate(at: f64) -> String {
    let text = format!("{at:.1}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    path(class, [(x1, y1), (x2, y2)].into_iter())
}

pub(crate) fn path(class: &str, points: impl Iterator<Item = (f64, f64)>) -> String {
    let places: Vec<_> = points.map(|(x, y)| format!("{} {}", coordinate(x), coordinate(y))).collect();
    if places.is_empty() {
        return String::new();
    }
    format!("<path class=\"{class}\" d=\"M{}\"/>\n", places.join("L"))
}

pub(crate) fn rect(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> String {
    let [x, y, width, height] = [x, y, width, height].map(coordinate);
    format!("<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>\n")
}

pub(crate) fn circle(class: &str, (x, y): (f64, f64), radius: f64) -> String {
    let [x, y, radius] = [x, y, radius].map(coordinate);
    format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>\n")
}

/// `class` sets the text's anchor: `start`, `middle`, `end`.
pub(crate) fn text(class: &str, (x, y): (f64, f64), text: impl Display) -> String {
    let ([x, y], text) = ([x, y].map(coordinate), escape(&text.to_string()));
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>\n")
}

/// A picture that fills its column of the page. `id` is unique on the page.
pub(crate) fn picture(
    id: &str,
    (width, height): (f64, f64),
    (title, description): (&str, &str),
    content: &str,
) -> String {
    let ([title, description], [width, height]) = ([title, description].map(escape), [width, height].map(coordinate));
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n\
         <title id=\"{id}-title\">{title}</title>\n<desc id=\"{id}-desc\">{description}</desc>\n{content}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped() {
        assert_eq!(
            text("end", (1.0, 2.04), "<a href='x'> & \"b\""),
            "<text class=\"end\" x=\"1\" y=\"2\">&lt;a href=&#39;x&#39;&gt; &amp; &quot;b&quot;</text>\n"
        );
        let picture = picture("p", (10.0, 20.5), ("a<b", "c&d"), "");
        assert!(picture.contains("viewBox=\"0 0 10 20.5\""), "{picture}");
        assert!(picture.contains("<title id=\"p-title\">a&lt;b</title>"), "{picture}");
        assert!(picture.contains("<desc id=\"p-desc\">c&amp;d</desc>"), "{picture}");
    }

    #[test]
    fn coordinates_have_one_digit_behind_the_point() {
        assert_eq!(line("grid", (0.0, 100.0), (33.333, 0.05)), "<path class=\"grid\" d=\"M0 100L33.3 0.1\"/>\n");
    }
}
