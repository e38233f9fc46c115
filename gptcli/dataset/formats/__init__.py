"""Readers of documents: Word, OpenDocument, EPUB, HTML, PDF, mail and chats.

Each module is one format and has `read_documents`, the interface of `dataset.readers`. They share these parts:

    archive         a zip file within limits
    xml_events      an XML file as events, without entities
    text_flow       the events as lines and paragraphs of text
    charsets        the encodings that a file may name
    library_errors  errors of the libraries as ours, for all readers

Documents come from anywhere, so a reader runs nothing, fetches nothing, and unpacks no more than limits allow. XML and
zip are read with the standard library; HTML, PDF and JSON need the packages of the extra `documents`, which are
imported when such a file is read.
"""
